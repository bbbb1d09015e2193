// The innermost loops: one tile of lines, for output channels [first, end) and one chunk of input channels.
#pragma once

#include "conv_plan.inc.cpp"
#include "lane_sums.inc.cpp"

namespace wb::WB_ISA {

// Adds to the tiles at `to`, `to_stride` numbers a channel, lines `line` numbers apart. The first chunk sets them,
// to the bias and what it adds. `masks`, if any, tell which rows a connection of each height adds to.
template <class T, int R, int V>
static void gather_tile(const ConvPlan<T>& plan, const uint16_t* masks, const T* from, int64_t row_stride,
                        int64_t chunk, int64_t first, int64_t end, const T* bias, T* to, int64_t to_stride,
                        int64_t line) {
    constexpr int lanes = kVectorBytes / sizeof(T);
    using Vector = Vec<T>;
    const ConvEntry<T>* const entries = plan.entries;
    const int64_t* const cells = plan.cell(chunk, 0);
    for (int64_t row = first; row < end; ++row, to += to_stride) {
        int64_t k = cells[row];
        const int64_t stop = cells[row + 1];
        if (k == stop && chunk > 0) continue;
        const T* const base = from + plan.group_base(row);
        Vector sums[R][V];
        if (chunk == 0) {
            const Vector start = splat<T>(bias == nullptr ? T(0) : bias[row]);
            for (int r = 0; r < R; ++r)
                for (int v = 0; v < V; ++v) sums[r][v] = start;
        } else {
            for (int r = 0; r < R; ++r)
                for (int v = 0; v < V; ++v) sums[r][v] = load<T>(to + r * line + v * lanes);
        }
        if (masks == nullptr) {
            for (; k < stop; ++k) {
                const T* x = base + entries[k].offset;
                const Vector weight = splat<T>(entries[k].weight);
                for (int r = 0; r < R; ++r, x += row_stride)
                    for (int v = 0; v < V; ++v) sums[r][v] += weight * load<T>(x + v * lanes);
            }
        } else {
            for (; k < stop; ++k) {
                const T* x = base + entries[k].offset;
                const Vector weight = splat<T>(entries[k].weight);
                const unsigned mask = masks[plan.heights[k]];
                for (int r = 0; r < R; ++r, x += row_stride) {
                    if (!(mask >> r & 1)) continue;
                    for (int v = 0; v < V; ++v) sums[r][v] += weight * load<T>(x + v * lanes);
                }
            }
        }
        for (int r = 0; r < R; ++r)
            for (int v = 0; v < V; ++v) store<T>(to + r * line + v * lanes, sums[r][v]);
    }
}

// Adds the products of the tiles of dy and of x to sums[entry], padding included: leaving it out here gained nothing.
template <class T, int R, int V>
static void product_tile(const ConvPlan<T>& plan, const T* from, int64_t row_stride, int64_t chunk, int64_t first,
                         int64_t end, const T* dy, int64_t dy_stride, int64_t line, T* sums) {
    constexpr int lanes = kVectorBytes / sizeof(T);
    using Vector = Vec<T>;
    const ConvEntry<T>* const entries = plan.entries;
    const int64_t* const cells = plan.cell(chunk, 0);
    dy += first * dy_stride;
    for (int64_t row = first; row < end; ++row, dy += dy_stride) {
        int64_t k = cells[row];
        const int64_t stop = cells[row + 1];
        if (k == stop) continue;
        const T* const base = from + plan.group_base(row);
        Vector out[R][V];
        for (int r = 0; r < R; ++r) {
            for (int v = 0; v < V; ++v) {
                out[r][v] = load<T>(dy + r * line + v * lanes);
                keep(out[r][v]);
            }
        }
        const auto product = [&](int64_t entry) __attribute__((always_inline)) {
            // Two chains of additions: one alone would make the next connections wait.
            const T* x = base + entries[entry].offset;
            Vector sum[2] = {};
            for (int r = 0; r < R; ++r, x += row_stride) {
                for (int v = 0; v < V; ++v) {
                    const int i = r * V + v;
                    const Vector value = load<T>(x + v * lanes);
                    sum[i % 2] = i < 2 ? out[r][v] * value : sum[i % 2] + out[r][v] * value;
                }
            }
            return sum[0] + sum[1];
        };
        Vector four[4];
        for (; k + 4 <= stop; k += 4) {
            for (int i = 0; i < 4; ++i) four[i] = product(k + i);
            constexpr int bytes = sizeof(Four<T>);
            store<T, bytes>(sums + k, load<T, bytes>(sums + k) + sum_lanes<T, kVectorBytes>(four));
        }
        if (k < stop) {
            four[1] = four[2] = four[3] = Vector{};
            four[0] = product(k);
            if (k + 1 < stop) four[1] = product(k + 1);
            if (k + 2 < stop) four[2] = product(k + 2);
            const Four<T> last = sum_lanes<T, kVectorBytes>(four);
            for (int i = 0; k + i < stop; ++i) sums[k + i] += last[i];
        }
    }
}

template <class T>
using GatherTile = decltype(&gather_tile<T, 1, 1>);
template <class T>
using ProductTile = decltype(&product_tile<T, 1, 1>);

// The functions for the tiles of a tiling.
template <class T, int R, int V>
WB_INLINE void pick_tile(const Tiling& tiling, GatherTile<T>& gather, ProductTile<T>& product) {
    if constexpr (has_tile(R, V)) {
        if (tiling.R != R || tiling.V != V) return;
        gather = gather_tile<T, R, V>;
        product = product_tile<T, R, V>;
    } else {
        (void)tiling, (void)gather, (void)product;
    }
}
template <class T>
struct TileFunctions {
    GatherTile<T> gather = nullptr;
    ProductTile<T> product = nullptr;

    explicit TileFunctions(const Tiling& tiling) {
        pick(tiling, std::make_integer_sequence<int, kTileSide * kTileSide>{});
    }

private:
    template <int... I>
    void pick(const Tiling& tiling, std::integer_sequence<int, I...>) {
        (pick_tile<T, I / kTileSide + 1, I % kTileSide + 1>(tiling, gather, product), ...);
    }
};

}  // namespace wb::WB_ISA
