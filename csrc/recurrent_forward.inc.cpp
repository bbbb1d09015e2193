// The forward pass of a panel of sequences through time. A step reads its sources (x of the step, h of the step before)
// from a panel that stays in the first cache, and writes what it keeps in one stream.
#pragma once

#include "recurrent_links.inc.cpp"
#include "team.inc.cpp"
#include "vector_math.inc.cpp"
#include "transpose.inc.cpp"

namespace wb::WB_ISA {

// What is done to a sum before it is kept.
enum class After { nothing, sigmoid, tanh };

// One of the four sums of a unit, `cell` its place among what is kept.
template <class Panel, After after>
WB_INLINE void make_sum(const LinksBySum<typename Panel::Number>& by_sum, int64_t number,
                        const typename Panel::Number* bias, const typename Panel::Number* sources,
                        typename Panel::Number* cell) {
    using T = typename Panel::Number;
    typename Panel::V sum[Panel::vectors];
    sum_links<Panel>(by_sum.links + by_sum.first[number], by_sum.links + by_sum.first[number + 1], bias[number], sources,
                     sum);
    for (int k = 0; k < Panel::vectors; ++k) {
        if constexpr (after == After::sigmoid) sum[k] = sigmoid_of<T, Panel::Bytes>(sum[k]);
        if constexpr (after == After::tanh) sum[k] = tanh_of<T, Panel::Bytes>(sum[k]);
        Panel::put(cell, k, sum[k]);
    }
}

// c and h of one unit from i, f, g, o.
template <class Panel, bool Masked>
WB_INLINE void lstm_unit(typename Panel::Number* cell, const typename Panel::Number* c_before,
                         const typename Panel::Number* h_before, typename Panel::Number* h,
                         const Bits<typename Panel::Number>* mask) {
    using T = typename Panel::Number;
    using V = typename Panel::V;
    constexpr int64_t W = Panel::W;
    for (int k = 0; k < Panel::vectors; ++k) {
        const V i = Panel::get(cell, k), f = Panel::get(cell + W, k);
        const V g = Panel::get(cell + 2 * W, k), o = Panel::get(cell + 3 * W, k), before = Panel::get(c_before, k);
        V c = f * before + i * g;
        V out = o * tanh_of<T, Panel::Bytes>(c);
        if constexpr (Masked) {
            const auto running = load<Bits<T>, Panel::Bytes>(mask + k * Panel::lanes);
            c = Panel::choose(running, c, before);
            out = Panel::choose(running, out, Panel::get(h_before, k));
        }
        Panel::put(cell + 4 * W, k, c);
        Panel::put(h, k, out);
    }
}

// n and h of one unit from r, z and n's two parts.
template <class Panel, bool Masked>
WB_INLINE void gru_unit(typename Panel::Number* cell, const typename Panel::Number* h_before,
                        typename Panel::Number* h, const Bits<typename Panel::Number>* mask) {
    using T = typename Panel::Number;
    using V = typename Panel::V;
    constexpr int64_t W = Panel::W;
    for (int k = 0; k < Panel::vectors; ++k) {
        const V r = Panel::get(cell, k), z = Panel::get(cell + W, k), before = Panel::get(h_before, k);
        const V n = tanh_of<T, Panel::Bytes>(Panel::get(cell + 2 * W, k) + r * Panel::get(cell + 3 * W, k));
        V out = n + z * (before - n);
        if constexpr (Masked) out = Panel::choose(load<Bits<T>, Panel::Bytes>(mask + k * Panel::lanes), out, before);
        Panel::put(cell + 2 * W, k, n);
        Panel::put(cell + 4 * W, k, out);
        Panel::put(h, k, out);
    }
}

// One step of the units [begin, end): `sources` are x and h before it, h goes to `h`.
template <class Panel, bool Gru, bool Masked>
static void forward_step(const wb_recurrent& job, int64_t begin, int64_t end,
                         const LinksBySum<typename Panel::Number> by_sum, const typename Panel::Number* bias,
                         const typename Panel::Number* sources,
                         const typename Panel::Number* c_before, int64_t c_stride, typename Panel::Number* slot,
                         typename Panel::Number* h, const Bits<typename Panel::Number>* mask) {
    using T = typename Panel::Number;
    constexpr int64_t W = Panel::W;
    constexpr After third = Gru ? After::nothing : After::tanh, fourth = Gru ? After::nothing : After::sigmoid;
    const T* h_before = sources + job.n_in * W;
    for (int64_t unit = begin; unit < end; ++unit) {
        T* cell = slot + unit * kKept * W;
        prefetch_unit<Panel>(cell);
        make_sum<Panel, After::sigmoid>(by_sum, unit * kSums, bias, sources, cell);
        make_sum<Panel, After::sigmoid>(by_sum, unit * kSums + 1, bias, sources, cell + W);
        make_sum<Panel, third>(by_sum, unit * kSums + 2, bias, sources, cell + 2 * W);
        make_sum<Panel, fourth>(by_sum, unit * kSums + 3, bias, sources, cell + 3 * W);
        if constexpr (Gru) gru_unit<Panel, Masked>(cell, h_before + unit * W, h + unit * W, mask);
        else lstm_unit<Panel, Masked>(cell, c_before + unit * c_stride, h_before + unit * W, h + unit * W, mask);
    }
}

// A step is one phase of a team: block 0 packs x of the next step, the others have some units each, to the output.
template <class Panel, bool Gru>
static void forward_stretch(const Stretch<typename Panel::Number>& run, const LinksBySum<typename Panel::Number>& links,
                            const typename Panel::Number* bias, int threads) {
    using T = typename Panel::Number;
    constexpr int64_t W = Panel::W;
    constexpr int PanelBytes = Panel::PanelBytes;
    const wb_recurrent& job = run.job;
    const int64_t hidden = job.n_hidden, n_in = job.n_in, slot_size = kKept * hidden * W;
    T* space = static_cast<T*>(scratch(
        Scratch::recurrent,
        static_cast<size_t>((2 * (n_in + hidden) + hidden) * W + (run.kept ? 0 : slot_size)) * sizeof(T)));
    T* sources[2] = {space, space + (n_in + hidden) * W};  // of even and of odd steps
    T* c_0 = sources[1] + (n_in + hidden) * W;
    T* spare = c_0 + hidden * W;
    alignas(64) Bits<T> mask[W];
    const auto slot_of = [&](int64_t step) { return run.kept ? run.kept + step * slot_size : spare; };
    const auto pack_x = [&](int64_t step) {
        if (step >= run.steps) return;
        pack<T, PanelBytes>(run.at(job.x, run.first, job.x_sample, run.time(step), job.x_time), job.x_sample,
                            run.samples, n_in, sources[step % 2]);
    };
    const auto units = [&](int64_t step, int64_t begin, int64_t end) {
        const T* c_before = step == 0 ? c_0 : slot_of(step - 1) + 4 * W;
        const bool all = run.all_run(step);
        const auto take = all ? forward_step<Panel, Gru, false> : forward_step<Panel, Gru, true>;
        T* h = sources[(step + 1) % 2] + n_in * W;
        const int64_t c_stride = step == 0 ? W : kKept * W;
        take(job, begin, end, links, bias, sources[step % 2], c_before, c_stride, slot_of(step), h, mask);
        T* y = run.at(job.y, run.first, job.y_sample, run.time(step), job.y_time) + begin;
        unpack<T, PanelBytes>(h + begin * W, run.samples, end - begin, y, job.y_sample);
        for (int64_t b = 0; !all && b < run.samples; ++b)
            if (!mask[b]) clear_rows(y, job.y_sample, end - begin, b);
    };
    pack<T, PanelBytes>(run.rows_of_state(job.h_0), hidden, run.samples, hidden, sources[0] + n_in * W);
    if constexpr (!Gru) pack<T, PanelBytes>(run.rows_of_state(job.c_0), hidden, run.samples, hidden, c_0);
    pack_x(0);
    const int64_t parts = parts_of(hidden, threads);
    Team::walk(
        threads, run.steps, [&](int64_t) { return 1 + parts; },
        [&](int64_t step) {
            if (!run.all_run(step)) run.mark_running(step, W, mask);
        },
        [&](int64_t step, int64_t block) {
            if (block == 0) pack_x(step + 1);
            else units(step, part_begin(hidden, parts, block - 1), part_begin(hidden, parts, block));
        });
    for (int64_t time = run.steps; time < job.steps; ++time)
        for (int64_t b = 0; b < run.samples; ++b)
            clear_rows(run.at(job.y, run.first, job.y_sample, time, job.y_time), job.y_sample, hidden, b);
    unpack<T, PanelBytes>(sources[run.steps % 2] + n_in * W, run.samples, hidden, run.rows_of_state(job.h_n), hidden);
    if constexpr (!Gru) {
        // c lies among what the last step keeps; where there was no step, it is c_0.
        for (int64_t unit = 0; run.steps > 0 && unit < hidden; ++unit)
            std::memcpy(c_0 + unit * W, slot_of(run.steps - 1) + (unit * kKept + 4) * W, W * sizeof(T));
        unpack<T, PanelBytes>(c_0, run.samples, hidden, run.rows_of_state(job.c_n), hidden);
    }
}

}  // namespace wb::WB_ISA
