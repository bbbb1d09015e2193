// A panel of sequences: up to 32 floats or 16 doubles side by side, one vector or a few for each feature.
#pragma once

#include "layer.inc.cpp"

namespace wb::WB_ISA {

template <class T, int PanelBytes_>
struct SamplePanel {
    using Number = T;
    static constexpr int PanelBytes = PanelBytes_;
    static constexpr int Bytes = PanelBytes < kVectorBytes ? PanelBytes : kVectorBytes;
    static constexpr int vectors = PanelBytes / Bytes;
    static constexpr int lanes = Bytes / static_cast<int>(sizeof(T));
    static constexpr int64_t W = PanelBytes / static_cast<int64_t>(sizeof(T));
    using V = Vec<T, Bytes>;
    using Mask = BitsVec<T, Bytes>;

    static WB_INLINE V get(const T* row, int i) { return load<T, Bytes>(row + i * lanes); }
    static WB_INLINE void put(T* row, int i, V value) { store<T, Bytes>(row + i * lanes, value); }
    static WB_INLINE V choose(Mask mask, V yes, V no) { return (V)(((Mask)yes & mask) | ((Mask)no & ~mask)); }
    static WB_INLINE V only(Mask mask, V value) { return (V)((Mask)value & mask); }
};

// The sequences [first, first + samples) of a job, as many steps as the longest of them has, and where their part of
// what is kept begins. Steps are numbered in the order in which they run.
template <class T>
struct Stretch {
    const wb_recurrent& job;
    int64_t first, samples;
    int64_t steps, shortest;
    T* kept;

    int64_t time(int64_t step) const { return job.reverse ? steps - 1 - step : step; }
    bool all_run(int64_t step) const { return time(step) < shortest; }
    bool runs(int64_t sample, int64_t step) const {
        return job.lengths == nullptr || time(step) < job.lengths[first + sample];
    }

    // All ones in the lanes of sequences that run in this step, and in the lanes of none.
    void mark_running(int64_t step, int64_t lanes, Bits<T>* mask) const {
        for (int64_t b = 0; b < lanes; ++b) mask[b] = b >= samples || runs(b, step) ? Bits<T>(-1) : Bits<T>(0);
    }

    // One step of a [time, batch, features] array.
    template <class Pointer>
    static T* at(Pointer base, int64_t first, int64_t sample_stride, int64_t time, int64_t time_stride) {
        return static_cast<T*>(const_cast<void*>(static_cast<const void*>(base))) + first * sample_stride +
               time * time_stride;
    }
    T* rows_of_state(const void* state) const { return at(state, first, job.n_hidden, 0, 0); }
};

// Values that a step keeps for each hidden unit: the four sums after their functions, and c (LSTM) or h (GRU) after it.
constexpr int64_t kKept = 5;

// What is kept is larger than the caches, and both passes stream through it: this many units ahead it is fetched.
constexpr int64_t kUnitsAhead = 6;

template <class Panel>
WB_INLINE void prefetch_unit(const typename Panel::Number* cell) {
    prefetch<kKept * Panel::PanelBytes>(reinterpret_cast<uintptr_t>(cell) + kUnitsAhead * kKept * Panel::PanelBytes);
}

template <class T>
static Stretch<T> stretch_of(const wb_recurrent& job, int64_t panel) {
    const int64_t width = widest_samples<T>, first = panel * width, samples = std::min(width, job.batch - first);
    int64_t longest = job.steps, shortest = job.steps;
    if (job.lengths != nullptr) {
        longest = *std::max_element(job.lengths + first, job.lengths + first + samples);
        shortest = *std::min_element(job.lengths + first, job.lengths + first + samples);
    }
    T* kept = static_cast<T*>(job.kept);
    if (kept != nullptr) kept += first * job.steps * kKept * job.n_hidden;
    return Stretch<T>{job, first, samples, longest, shortest, kept};
}

// Units are shared out in parts that are whole cache lines of the output. One for each thread: smaller ones would even
// out better, but wander between threads from step to step, and with them what they read; that took a fifth longer.
constexpr int64_t kPart = 16;

static int64_t parts_of(int64_t units, int threads) {
    return std::max<int64_t>(1, std::min<int64_t>(threads, (units + kPart - 1) / kPart));
}

static int64_t part_begin(int64_t units, int64_t parts, int64_t part) {
    return part == parts ? units : units * part / parts / kPart * kPart;
}

// Sets the features of samples that do not run to 0, [samples] rows with this stride.
template <class T>
static void clear_rows(T* to, int64_t stride, int64_t features, int64_t row) {
    std::fill(to + row * stride, to + row * stride + features, T(0));
}

}  // namespace wb::WB_ISA
