// y = x W^T + bias. By columns: every column scatters into a panel of y; a panel is private to a thread. By rows:
// linear_by_rows.inc.cpp.
#pragma once

#include "layer.inc.cpp"
#include "linear_by_rows.inc.cpp"
#include "linear_plan.inc.cpp"
#include "transpose.inc.cpp"

namespace wb::WB_ISA {

// panel[row] += weight * x for the connections [begin, end) of one column. `panel` is an address, not a pointer,
// because a tile starts at a row other than 0. `last` is the last connection whose row may be prefetched.
template <class T, int PanelBytes, Access access>
WB_INLINE void scatter_column(const Layer<T>& layer, int64_t begin, int64_t end, int64_t last, const T* x,
                              uintptr_t panel) {
    constexpr int Bytes = PanelBytes < kVectorBytes ? PanelBytes : kVectorBytes;
    constexpr int vectors = PanelBytes / Bytes;
    constexpr int lanes = Bytes / sizeof(T);
    using V = Vec<T, Bytes>;
    const int32_t* packed_rows = layer.packed_rows;
    const auto row_address = [&](int64_t k) __attribute__((always_inline)) {
        return panel + row_bytes<PanelBytes, access>(packed_rows[k]);
    };
    V in[vectors];
    for (int i = 0; i < vectors; ++i) in[i] = load<T, Bytes>(x + i * lanes);
    for (int64_t k = begin; k < end; ++k) {
        T* y = reinterpret_cast<T*>(row_address(k));
        if constexpr (access == Access::prefetched)
            prefetch<PanelBytes>(row_address(std::min(k + kPrefetchAhead, last)));
        const V weight = splat<T, Bytes>(with_sign(layer.theta[k], packed_rows[k]));
        for (int i = 0; i < vectors; ++i) {
            // A separate multiplication and addition: on AMD's cores a fused one that ends in a store takes half as
            // long again, because its third operand and the store share a port.
            V product = weight * in[i];
            keep_apart(product);
            store<T, Bytes>(y + i * lanes, load<T, Bytes>(y + i * lanes) + product);
        }
    }
}

// Rows of the panel start at the bias.
template <class T, int PanelBytes>
static void start_panel(T* panel, const T* bias, int64_t rows) {
    constexpr int W = PanelBytes / sizeof(T);
    if (bias == nullptr) {
        std::memset(panel, 0, static_cast<size_t>(rows) * PanelBytes);
        return;
    }
    constexpr int Bytes = PanelBytes < kVectorBytes ? PanelBytes : kVectorBytes;
    for (int64_t row = 0; row < rows; ++row) {
        const auto value = splat<T, Bytes>(bias[row]);
        for (int i = 0; i < PanelBytes / Bytes; ++i)
            store<T, Bytes>(panel + row * W + i * (Bytes / static_cast<int>(sizeof(T))), value);
    }
}

// One tile of rows for up to W samples. The layer is a copy, because stores into the panel could otherwise change the
// original.
template <class T, int PanelBytes, Access access>
static void forward_tile(const Layer<T> layer, const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t samples,
                         const T* bias, T* panel, const RowTile& tile, int32_t* cursors) {
    constexpr int W = PanelBytes / sizeof(T);
    alignas(64) T block[kBlockColumns * W];
    TileRuns runs;
    const int64_t last = layer.connections() - 1;
    const uintptr_t origin = reinterpret_cast<uintptr_t>(panel) - static_cast<uintptr_t>(tile.first) * PanelBytes;
    start_panel<T, PanelBytes>(panel, bias ? bias + tile.first : nullptr, tile.end - tile.first);
    for (int64_t first = 0; first < layer.n_in; first += kBlockColumns) {
        const int64_t columns = std::min(kBlockColumns, layer.n_in - first);
        if (layer.begin(first) == layer.begin(first + columns)) continue;
        if constexpr (access == Access::tiled)
            find_runs<T, PanelBytes>(layer, first, columns, tile, cursors, origin, runs);
        pack<T, PanelBytes>(x + first, x_stride, samples, columns, block);
        for (int64_t c = 0; c < columns; ++c) {
            const int64_t begin = access == Access::tiled ? runs.begin[c] : layer.begin(first + c);
            const int64_t stop = access == Access::tiled ? runs.stop[c] : layer.begin(first + c + 1);
            scatter_column<T, PanelBytes, access>(layer, begin, stop, last, block + c * W, origin);
        }
    }
    unpack<T, PanelBytes>(panel, samples, tile.end - tile.first, y + tile.first, y_stride);
}

// Up to W samples, the rows [first_row, end_row).
template <class T, int PanelBytes>
static void forward_panel(const Layer<T>& layer, const T* x, int64_t x_stride, T* y, int64_t y_stride,
                          int64_t samples, const T* bias, int64_t tile_bytes, int64_t first_row, int64_t end_row) {
    const int64_t rows = round_up(end_row - first_row, kPanelRound);
    const int64_t tile_rows = std::min(rows, tile_bytes / PanelBytes / kPanelRound * kPanelRound);
    T* panel = static_cast<T*>(scratch(Scratch::panel, static_cast<size_t>(tile_rows) * PanelBytes));
    int32_t* cursors = nullptr;
    if (tile_rows < layer.n_out) {
        cursors = static_cast<int32_t*>(scratch(Scratch::cursors, static_cast<size_t>(layer.n_in) * sizeof(int32_t)));
        start_cursors(layer, first_row, cursors);
    }
    for (int64_t first = first_row; first < end_row; first += tile_rows) {
        const RowTile tile{first, std::min(first + tile_rows, end_row), tile_rows * PanelBytes > kPrefetchBytes};
        const Access access = access_to(tile_rows * PanelBytes, cursors);
        const auto run = access == Access::cached       ? forward_tile<T, PanelBytes, Access::cached>
                         : access == Access::prefetched ? forward_tile<T, PanelBytes, Access::prefetched>
                                                        : forward_tile<T, PanelBytes, Access::tiled>;
        run(layer, x, x_stride, y, y_stride, samples, bias, panel, tile, cursors);
    }
}

// One sample needs no panel.
template <class T>
static void forward_single(const Layer<T>& layer, const T* x, T* y, const T* bias) {
    for (int64_t row = 0; row < layer.n_out; ++row) y[row] = bias ? bias[row] : T(0);
    int64_t k = 0;
    for (int64_t column = 0; column < layer.n_in; ++column) {
        const T value = x[column];
        for (const int64_t end = layer.begin(column + 1); k < end; ++k)
            y[row_of(layer.packed_rows[k])] += with_sign(layer.theta[k], layer.packed_rows[k]) * value;
    }
}

template <class T>
static void linear_forward(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t batch, int64_t n_in,
                           int64_t n_out, const int64_t* colptr, const int32_t* packed_rows, const T* theta, const T* bias,
                           int threads) {
    const Layer<T> layer{n_in, n_out, colptr, packed_rows, theta};
    if (batch <= 0 || n_out <= 0) return;
    if (batch == 1) return forward_single(layer, x, y, bias);
    if ((layer.connections() + n_in + n_out) * batch < kParallelWork) threads = 1;
    const ByRows plan = plan_by_rows<T>(n_in, n_out, layer.connections(), batch);
    if (plan.chosen)
        return forward_by_rows(RowsJob<T>{layer, x, x_stride, y, y_stride, bias, plan.tile_columns}, batch, plan.group, threads);

    const int64_t width = width_by_columns<T>(n_out);
    const int64_t panels = (batch + width - 1) / width;
    const int64_t parts = std::min(row_parts(panels, threads), (n_out + kPanelRound - 1) / kPanelRound);
    const int64_t part_rows = round_up((n_out + parts - 1) / parts, kPanelRound);
    const int64_t tile_bytes = kTileBytes / std::max<int64_t>(1, std::min<int64_t>(threads, panels * parts));
    parallel_for(threads, panels * parts, [&](int64_t chunk) {
        const int64_t first = chunk / parts * width, first_row = chunk % parts * part_rows;
        if (first_row >= n_out) return;
        const int64_t samples = std::min(width, batch - first);
        with_panel_bytes<T>(samples, [&](auto bytes) {
            forward_panel<T, decltype(bytes)::value>(layer, x + first * x_stride, x_stride, y + first * y_stride, y_stride,
                                                     samples, bias, tile_bytes, first_row,
                                                     std::min(first_row + part_rows, n_out));
        });
    });
}

}  // namespace wb::WB_ISA
