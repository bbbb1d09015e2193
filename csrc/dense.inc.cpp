// Linear layers most of whose positions are active: blocks of W^T are written out (blocks.inc.cpp) and multiplied as dense
// matrices. Memory: one block a thread, and the activations in the order in which they are read.
//
// Every sum is added up in the order of its block's numbers, on whichever thread: no result depends on their number.
#pragma once

#include "blocks.inc.cpp"
#include "transpose.inc.cpp"

namespace wb::WB_ISA {

// Rows of a product that are held in registers at a time, two vectors of each.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileRows = 12;
#else
constexpr int kTileRows = 6;
#endif

// c[m][n] = start[m][n] + sum_k a[k][m] b[k][n]; `a` and `c` have any strides, and b_k is that of b.
template <class T>
struct Product {
    int64_t k;
    const T* a;
    int64_t a_k, a_m;
    const T* b;
    int64_t b_k;
    T* c;
    int64_t c_m;
    const T* start;  // null: 0
    int64_t start_m;

    WB_INLINE Product below(int64_t rows) const {
        return Product{k, a + rows * a_m, a_k, a_m, b, b_k, c + rows * c_m, c_m, start ? start + rows * start_m : nullptr, start_m};
    }
    WB_INLINE Product beside(int64_t columns) const {
        return Product{k, a, a_k, a_m, b + columns, b_k, c + columns, c_m, start ? start + columns : nullptr, start_m};
    }
};

// M rows, V vectors.
template <class T, int M, int V>
static void multiply_tile(const Product<T>& p) {
    constexpr int lanes = kVectorBytes / static_cast<int>(sizeof(T));
    Vec<T> sum[M][V];
    for (int m = 0; m < M; ++m)
        for (int v = 0; v < V; ++v) sum[m][v] = p.start ? load<T>(p.start + m * p.start_m + v * lanes) : Vec<T>{};
    const T *a = p.a, *b = p.b;
    const int64_t a_k = p.a_k, a_m = p.a_m, b_k = p.b_k;
    for (int64_t k = p.k; k > 0; --k, a += a_k, b += b_k) {
        Vec<T> right[V];
        for (int v = 0; v < V; ++v) right[v] = load<T>(b + v * lanes);
        for (int m = 0; m < M; ++m) {
            const Vec<T> left = splat<T>(a[m * a_m]);
            for (int v = 0; v < V; ++v) sum[m][v] += left * right[v];
        }
    }
    for (int m = 0; m < M; ++m)
        for (int v = 0; v < V; ++v) store<T>(p.c + m * p.c_m + v * lanes, sum[m][v]);
}

template <class T, int V, int M = kTileRows>
static void multiply_rows(Product<T> p, int64_t rows) {
    for (; rows >= M; rows -= M, p = p.below(M)) multiply_tile<T, M, V>(p);
    if constexpr (M > 1) {
        constexpr int fewer = M > 8 ? 8 : M > 4 ? 4 : M / 2;
        if (rows > 0) multiply_rows<T, V, fewer>(p, rows);
    }
}

// `columns` is a multiple of the lanes of a vector.
template <class T>
static void multiply(const Product<T>& p, int64_t rows, int64_t columns) {
    constexpr int64_t lanes = kVectorBytes / static_cast<int64_t>(sizeof(T));
    int64_t column = 0;
    for (; column + 2 * lanes <= columns; column += 2 * lanes) multiply_rows<T, 2>(p.beside(column), rows);
    if (column < columns) multiply_rows<T, 1>(p.beside(column), rows);
}

// Columns of a block in the forward pass: with the inputs that go with them, it stays in the first cache.
constexpr int64_t kDenseColumns = 256;
// Samples at a time: what is laid out for them stays in the second cache, and the matrix is written out once for them all.
constexpr int64_t kDenseSamples = 256;
// Columns of a block in the backward pass.
constexpr int64_t kGroupColumns = 12;

// Samples side by side in a panel, with at least a vector.
template <class T, class Function>
WB_INLINE void with_dense_panel(int64_t samples, Function&& function) {
    if (samples * static_cast<int64_t>(sizeof(T)) <= kVectorBytes) function(std::integral_constant<int, kVectorBytes>{});
    else if (kVectorBytes < 64 && samples * static_cast<int64_t>(sizeof(T)) <= 64) function(std::integral_constant<int, 64>{});
    else function(std::integral_constant<int, kPanelBytes>{});
}

template <class T>
static int block_fault(const Layer<T>& layer, int64_t first, int64_t columns, int bound) {
    for (int64_t c = first; c < first + columns; ++c) {
        const int64_t begin = layer.begin(c), count = layer.begin(c + 1) - begin;
        const T* theta = bound ? layer.theta + begin : nullptr;
        if (const int fault = column_fault(layer.packed_rows + begin, theta, count, layer.n_out)) return fault;
    }
    return WB_FINE;
}

// Whether the column pointers never fall and hold `connections`.
template <class T>
static bool columns_are_good(const Layer<T>& layer, int64_t connections) {
    if (layer.n_in <= 0 || layer.n_out <= 0) return connections == 0;
    int falls = 0;
    for (int64_t c = 0; c < layer.n_in; ++c) falls |= layer.colptr[c + 1] < layer.colptr[c];
    return !falls && layer.begin(layer.n_in) == connections;
}

// Rows [first_row, end_row) of the output for some samples. The layer's rows are looked through block by block, by
// `checks` alone if several threads work on it.
template <class T>
static int dense_forward_rows(const Layer<T>& layer, const T* x, int64_t x_stride, T* y, int64_t y_stride,
                              int64_t samples, const T* bias, int64_t first_row, int64_t end_row, int bound, bool checks) {
    constexpr int64_t W = widest_samples<T>, lanes = kVectorBytes / static_cast<int64_t>(sizeof(T));
    const int64_t panels = (samples + W - 1) / W;
    T* space = static_cast<T*>(scratch(Scratch::block, static_cast<size_t>((panels * W + 32) * kDenseColumns + W * 32) * sizeof(T)));
    T *block = space + panels * W * kDenseColumns, *edge = block + 32 * kDenseColumns;
    const int32_t* cursors[kDenseColumns];
    for (int64_t first = 0; first < layer.n_in; first += kDenseColumns) {
        const int64_t columns = std::min(kDenseColumns, layer.n_in - first);
        if (checks)
            if (const int fault = block_fault(layer, first, columns, bound)) return fault;
        for (int64_t panel = 0; panel < panels; ++panel)
            pack<T, kPanelBytes>(x + panel * W * x_stride + first, x_stride, std::min(W, samples - panel * W), columns,
                                 space + panel * W * kDenseColumns);
        for (int64_t c = 0; c < columns; ++c) {
            const int32_t *begin = layer.packed_rows + layer.begin(first + c), *end = layer.packed_rows + layer.begin(first + c + 1);
            cursors[c] = first_row == 0 ? begin : std::lower_bound(begin, end, first_row, [](int32_t packed, int64_t row) {
                return row_of(packed) < row;
            });
        }
        for (int64_t row = first_row; row < end_row; row += 32) {
            expand_panel(layer, first, columns, cursors, row, block);
            const int64_t rows = std::min<int64_t>(32, end_row - row), width = round_up(rows, lanes);
            for (int64_t panel = 0; panel < panels; ++panel) {
                const int64_t here = std::min(W, samples - panel * W);
                T* out = y + panel * W * y_stride + row;
                Product<T> p{columns, space + panel * W * kDenseColumns, W, 1, block, 32, out, y_stride, out, y_stride};
                if (first == 0) p.start = bias ? bias + row : nullptr, p.start_m = 0;
                if (rows < 32) {  // the last rows: beside the output
                    for (int64_t b = 0; b < here; ++b)
                        for (int64_t r = 0; r < width; ++r)
                            edge[b * 32 + r] = r < rows && p.start ? p.start[b * p.start_m + r] : T(0);
                    p.c = edge, p.start = edge, p.c_m = p.start_m = 32;
                }
                multiply(p, here, width);
                for (int64_t b = 0; rows < 32 && b < here; ++b) std::copy(edge + b * 32, edge + b * 32 + rows, out + b * y_stride);
            }
        }
    }
    return WB_FINE;
}

template <class T>
static int entry_dense_forward(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t batch, int64_t n_in,
                               int64_t n_out, int64_t connections, const int64_t* colptr, const int32_t* packed_rows,
                               const T* theta, int bound, const T* bias, int threads) {
    const Layer<T> layer{n_in, n_out, colptr, packed_rows, theta};
    if (!columns_are_good(layer, connections)) return WB_BAD_INDEX;
    if (n_in <= 0 || n_out <= 0 || batch <= 0) {
        for (int64_t b = 0; b < batch; ++b)
            for (int64_t row = 0; row < n_out; ++row) y[b * y_stride + row] = bias ? bias[row] : T(0);
        return WB_FINE;
    }
    if (n_in * n_out * batch < kParallelWork) threads = 1;
    const int64_t share = round_up((n_out + threads - 1) / std::max(1, threads), 32), chunks = (n_out + share - 1) / share;
    if (chunks > 1) {
        std::atomic<int> fault{WB_FINE};
        parallel_for(threads, (n_in + kDenseColumns - 1) / kDenseColumns, [&](int64_t block) {
            const int64_t first = block * kDenseColumns;
            if (const int found = block_fault(layer, first, std::min(kDenseColumns, n_in - first), bound)) fault = found;
        });
        if (fault != WB_FINE) return fault;
    }
    std::atomic<int> fault{WB_FINE};
    parallel_for(threads, chunks, [&](int64_t chunk) {
        const int64_t first = chunk * share, end = std::min(n_out, first + share);
        for (int64_t b = 0; b < batch; b += kDenseSamples) {
            const int64_t samples = std::min(kDenseSamples, batch - b);
            if (const int found = dense_forward_rows(layer, x + b * x_stride, x_stride, y + b * y_stride, y_stride, samples,
                                                     bias, first, end, bound, chunks == 1 && b == 0))
                return void(fault = found);
        }
    });
    return fault;
}

// The gradient of some samples' outputs in the two orders in which it is read: [panel][row][sample] for dx, and
// [row / 32][sample][32 rows] for dtheta; rows and samples that do not exist are 0.
template <class T>
struct OutputGradient {
    int64_t samples;
    const T *by_row, *by_sample;
};

// Both gradients of up to kGroupColumns columns.
template <class T, bool Add>
static void dense_backward_columns(const Layer<T>& layer, int64_t first, int64_t columns, const T* x, int64_t x_stride,
                                   const OutputGradient<T>& dy, T* dx, int64_t dx_stride, T* dtheta) {
    constexpr int64_t W = widest_samples<T>, lanes = kVectorBytes / static_cast<int64_t>(sizeof(T));
    const int64_t rows = round_up(layer.n_out, 32), stride = rows + 32, samples = dy.samples;
    T* block = static_cast<T*>(scratch(
        Scratch::block, static_cast<size_t>(kGroupColumns * (stride + W + kDenseSamples) + 64) * sizeof(T)));
    T *tile = block + kGroupColumns * stride, *inputs = tile + kGroupColumns * W;
    if (dx != nullptr) {
        expand_block(layer, first, columns, block, stride, rows);
        for (int64_t b = 0; b < samples; b += W) {
            const int64_t here = std::min(W, samples - b);
            with_dense_panel<T>(here, [&](auto bytes) {
                constexpr int64_t width = decltype(bytes)::value / static_cast<int64_t>(sizeof(T));
                const T* right = dy.by_row + b * rows;
                multiply(Product<T>{layer.n_out, block, 1, stride, right, width, tile, width, nullptr, 0}, columns, width);
                unpack<T, decltype(bytes)::value>(tile, here, columns, dx + b * dx_stride + first, dx_stride);
            });
        }
    }
    if (dtheta == nullptr) return;
    for (int64_t b = 0; b < samples; ++b)
        for (int64_t c = 0; c < columns; ++c) inputs[b * kGroupColumns + c] = x[b * x_stride + first + c];
    for (int64_t row = 0; row < rows; row += 32)
        multiply(Product<T>{samples, inputs, kGroupColumns, 1, dy.by_sample + row * samples, 32, block + row, stride, nullptr, 0},
                 columns, std::min<int64_t>(32, round_up(layer.n_out - row, lanes)));
    gather_block<T, Add>(layer, first, columns, block, stride, dtheta);
}

template <class T>
static int entry_dense_backward(const T* x, int64_t x_stride, const T* dy, int64_t dy_stride, T* dx, int64_t dx_stride,
                                T* dtheta, int64_t batch, int64_t n_in, int64_t n_out, int64_t connections,
                                const int64_t* colptr, const int32_t* packed_rows, const T* theta, int threads) {
    constexpr int64_t W = widest_samples<T>;
    const Layer<T> layer{n_in, n_out, colptr, packed_rows, theta};
    if (!columns_are_good(layer, connections)) return WB_BAD_INDEX;
    if (dtheta != nullptr && batch <= 0) std::fill(dtheta, dtheta + connections, T(0));
    if (n_out <= 0 && dx != nullptr)
        for (int64_t b = 0; b < batch; ++b) std::fill(dx + b * dx_stride, dx + b * dx_stride + n_in, T(0));
    if (n_in <= 0 || n_out <= 0 || batch <= 0) return WB_FINE;
    if (n_in * n_out * batch < kParallelWork) threads = 1;
    const int64_t rows = round_up(n_out, 32), most = std::min(kDenseSamples, round_up(batch, W));
    T* space = static_cast<T*>(scratch(Scratch::block_activations, static_cast<size_t>(2 * most * rows) * sizeof(T)));
    T* by_sample = space + most * rows;
    std::atomic<int> fault{WB_FINE};
    for (int64_t first_sample = 0; first_sample < batch; first_sample += kDenseSamples) {
        const int64_t samples = std::min(kDenseSamples, batch - first_sample);
        const T* from = dy + first_sample * dy_stride;
        for (int64_t b = 0; dx != nullptr && b < samples; b += W) {
            const int64_t here = std::min(W, samples - b);
            with_dense_panel<T>(here, [&](auto bytes) {
                pack<T, decltype(bytes)::value>(from + b * dy_stride, dy_stride, here, n_out, space + b * rows);
            });
        }
        for (int64_t b = 0; dtheta != nullptr && b < samples; ++b) {
            for (int64_t row = 0; row < rows; row += 32) {
                T* to = by_sample + row * samples + b * 32;
                const T *begin = from + b * dy_stride + row, *end = from + b * dy_stride + std::min(n_out, row + 32);
                std::fill(std::copy(begin, end, to), to + 32, T(0));
            }
        }
        const OutputGradient<T> gradient{samples, space, by_sample};
        parallel_for(threads, (n_in + kGroupColumns - 1) / kGroupColumns, [&](int64_t group) {
            const int64_t first = group * kGroupColumns, columns = std::min(kGroupColumns, n_in - first);
            if (first_sample == 0)
                if (const int found = block_fault(layer, first, columns, 0)) return void(fault = found);
            const auto run = first_sample == 0 ? dense_backward_columns<T, false> : dense_backward_columns<T, true>;
            run(layer, first, columns, x + first_sample * x_stride, x_stride, gradient,
                dx ? dx + first_sample * dx_stride : nullptr, dx_stride, dtheta);
        });
        if (fault != WB_FINE) return fault;
    }
    return WB_FINE;
}

// Whether a range of columns is one of the layer, whose connections are good there.
template <class T>
static int range_fault(const Layer<T>& layer, int64_t connections, int64_t first, int64_t columns, int bound) {
    const bool inside = first >= 0 && columns >= 0 && first + columns <= layer.n_in;
    if (!inside || !columns_are_good(layer, connections)) return WB_BAD_INDEX;
    return block_fault(layer, first, columns, bound);
}

template <class T>
static int entry_expand_columns(int64_t n_in, int64_t n_out, int64_t connections, const int64_t* colptr,
                                const int32_t* packed_rows, const T* theta, int bound, int64_t first, int64_t columns,
                                T* block) {
    const Layer<T> layer{n_in, n_out, colptr, packed_rows, theta};
    if (const int fault = range_fault(layer, connections, first, columns, bound)) return fault;
    expand_block(layer, first, columns, block, n_out, n_out);
    return WB_FINE;
}

template <class T>
static int entry_gather_columns(int64_t n_in, int64_t n_out, int64_t connections, const int64_t* colptr,
                                const int32_t* packed_rows, int64_t first, int64_t columns, const T* block, T* dtheta) {
    const Layer<T> layer{n_in, n_out, colptr, packed_rows, nullptr};
    if (const int fault = range_fault(layer, connections, first, columns, 0)) return fault;
    gather_block<T, false>(layer, first, columns, block, n_out, dtheta);
    return WB_FINE;
}

}  // namespace wb::WB_ISA
