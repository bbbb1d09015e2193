// The first panel of the fused step: samples picked out of the data set, scaled, as [feature][V * 8 samples].
#pragma once

#include "fused_sparse.inc.cpp"
#include "transpose.inc.cpp"

namespace wb::WB_ISA {

struct InputPanel {
    float* panel;
    int64_t n_in;
    std::vector<uint8_t> is_zero;  // whether a block of 8 features is zero in the panel now
    int vectors = 0;               // the V for which that holds
};

// Eight values of one sample as numbers.
WB_INLINE Floats8 load_values(const float* from) { return load<float, 32>(from); }
WB_INLINE Floats8 load_values(const uint8_t* from) {
#if defined(__AVX2__)
    uint64_t raw;
    std::memcpy(&raw, from, sizeof raw);
    return __builtin_convertvector(bytes_as_ints(raw), Floats8);
#else
    Floats8 values;
    for (int i = 0; i < 8; ++i) values[i] = from[i];
    return values;
#endif
}

// Whether the next 8 values are zero in all samples.
template <class X>
WB_INLINE bool is_zero_block(const X* const* rows, int64_t count, int64_t feature) {
    constexpr int kBytes = 8 * static_cast<int>(sizeof(X));  // 8 or 32
    Vec<uint8_t, kBytes> bits = {};
    for (int64_t b = 0; b < count; ++b) bits |= load<uint8_t, kBytes>(rows[b] + feature);
    uint64_t words[kBytes / 8], any = 0;
    std::memcpy(words, &bits, sizeof words);
    for (uint64_t word : words) any |= word;
    return any == 0;
}

// The connections of columns [first, last) join the ranges, in whole groups of eight.
static void add_range(const SparsePart& part, int64_t first, int64_t last, std::vector<Range>& ranges) {
    int64_t begin = (part.colptr[first] - part.colptr[0]) / 8 * 8;
    const int64_t end = std::min((part.colptr[last] - part.colptr[0] + 7) / 8 * 8, part.connections);
    if (!ranges.empty()) begin = std::max(begin, ranges.back().end);
    if (begin >= end) return;
    // Eight connections for nothing cost less than the end of a loop.
    if (!ranges.empty() && begin - ranges.back().end <= 8) ranges.back().end = end;
    else ranges.push_back(Range{begin, end});
}

// Fills the panel, and for a thin first layer lists the connections whose columns are not all zero: data like images
// are zero in large parts. A group of eight that reaches into a zero column multiplies zeros.
template <int V, class X>
static void gather_samples(const X* x, int64_t stride, float scale, float shift, const int64_t* samples, int64_t count,
                           InputPanel& input, const SparsePart* thin, std::vector<Range>& ranges) {
    const int64_t whole = input.n_in / 8 * 8;
    if (input.vectors != V) {
        input.vectors = V;
        input.is_zero.assign(static_cast<size_t>(whole / 8), 0);
    }
    ranges.clear();
    // Lanes without a sample hold values of others; their gradient is zero.
    const X* rows[8 * V];
    for (int64_t b = 0; b < 8 * V; ++b) rows[b] = x + samples[b < count ? b : 0] * stride;
    int64_t run = 0;  // first feature after the last block of zeros
    const auto end_run = [&](int64_t feature) {
        if (thin && feature > run) add_range(*thin, run, feature, ranges);
    };
    for (int64_t feature = 0; feature < whole; feature += 8) {
        float* to = input.panel + feature * V * 8;
        uint8_t& was_zero = input.is_zero[static_cast<size_t>(feature / 8)];
        if (shift == 0.0f && is_zero_block(rows, count, feature)) {
            if (!was_zero) std::memset(to, 0, 64 * V * sizeof(float));
            was_zero = 1;
            end_run(feature);
            run = feature + 8;
            continue;
        }
        was_zero = 0;
        for (int v = 0; v < V; ++v) {
            Floats8 values[8];
            if (v == V - 1 && count <= 8 * v + 4) {
                Floats8 few[4];
#pragma GCC unroll 4
                for (int i = 0; i < 4; ++i) few[i] = load_values(rows[8 * v + i] + feature) * scale + shift;
                transpose4(few, values);
            } else {
#pragma GCC unroll 8
                for (int i = 0; i < 8; ++i) values[i] = load_values(rows[8 * v + i] + feature) * scale + shift;
                transpose8(values);
            }
#pragma GCC unroll 8
            for (int i = 0; i < 8; ++i) store<float, 32>(to + (i * V + v) * 8, values[i]);
        }
    }
    end_run(input.n_in);
    for (int64_t feature = whole; feature < input.n_in; ++feature)
        for (int64_t b = 0; b < 8 * V; ++b)
            input.panel[feature * V * 8 + b] = static_cast<float>(rows[b][feature]) * scale + shift;
}

// Asks for the samples of the next step: they lie anywhere in the data set. Processors may drop a prefetch whose page
// they have not met lately, so each row's pages are read first, all at once.
static void prefetch_samples(const char* x, int64_t stride_bytes, int64_t row_bytes, const int64_t* samples, int64_t count) {
    constexpr int64_t kMostLines = 1024;  // more would push out what this step needs
    const int64_t rows = std::min(count, kMostLines / (row_bytes / 64 + 1));
    if (row_bytes == 0) return;
    for (int64_t b = 0; b < rows; ++b) {
        const volatile char* row = x + samples[b] * stride_bytes;
        (void)row[0];
        (void)row[row_bytes - 1];
    }
    for (int64_t b = 0; b < rows; ++b) {
        const char* row = x + samples[b] * stride_bytes;
        // Not into the first cache, which this step needs.
        for (int64_t at = 0; at < row_bytes; at += 64) __builtin_prefetch(row + at, 0, 2);
    }
}

}  // namespace wb::WB_ISA
