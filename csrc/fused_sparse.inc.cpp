// Sparse layers of the fused step, on panels [feature][V * 8 samples].
//
// Thin layers have two or three connections a column: a loop over them would spend its time on mispredicted ends.
// They are taken eight connections at a time whatever their column, which each of them then has to know. Thicker
// layers go column by column and keep the column's samples in registers.
#pragma once

#include "lane_sums.inc.cpp"
#include "layer.inc.cpp"
#include "vector_math.inc.cpp"

namespace wb::WB_ISA {

// The part of a wiring that is one layer; connections are counted from the layer's first.
struct SparsePart {
    int64_t n_in, n_out, connections;
    const int64_t* colptr;   // absolute, from the layer's first column
    const int32_t* packed_rows;
    const float* theta;
    const int32_t* columns;  // column of each connection among those of the wiring, or null: column by column
    int32_t first_column;
    float* weights;          // with their signs, if there are columns
    float* gradient;
};

// Connections a column, below which a layer is thin; and its rows, so that a panel of them has less than 4 GB.
constexpr int64_t kThinColumn = 8, kMostThinRows = int64_t{1} << 25;
WB_INLINE bool is_thin(int64_t connections, int64_t n_in, int64_t n_out) {
    return connections < kThinColumn * n_in && n_out < kMostThinRows;
}

// The loops of a thin layer are limited by their instructions, so weights get their signs by vectors, once for all
// panels of a batch.
static void prepare_weights(const SparsePart& part) {
    const int32_t* __restrict packed_rows = part.packed_rows;
    const float* __restrict theta = part.theta;
    float* __restrict weights = part.weights;
    for (int64_t k = 0; k < part.connections; ++k) weights[k] = with_sign(theta[k], packed_rows[k]);
}

struct Range {
    int64_t begin, end;
};

// Feature number `feature` of a panel whose first one has number `first`. In integers, because a wiring counts columns
// through all its layers and the panel's address less `first` features may point nowhere.
template <int V>
class PanelAt {
public:
    WB_INLINE PanelAt(const float* panel, int64_t first)
        : base_(reinterpret_cast<uintptr_t>(panel) - static_cast<uintptr_t>(first) * kBytes) {}
    WB_INLINE float* operator[](uint32_t feature) const { return reinterpret_cast<float*>(base_ + feature * kBytes); }
    // Of a connection's row: a product of 32 bits loses the sign's bit by itself, and kMostThinRows loses nothing else.
    WB_INLINE float* row(int32_t packed_rows) const {
        return reinterpret_cast<float*>(base_ + static_cast<uint32_t>(packed_rows) * static_cast<uint32_t>(kBytes));
    }

private:
    static constexpr uintptr_t kBytes = V * 32;
    uintptr_t base_;
};

// y += w x for a range of connections of a thin layer. The part is a copy, because stores into a panel could otherwise
// change the original.
template <int V>
static void forward_thin(const SparsePart part, Range range, const float* x, float* y) {
    const PanelAt<V> inputs(x, part.first_column), outputs(y, 0);
    // Of an even number of vectors, as wide ones as there are: each is a load, a product and a store.
    constexpr int kBytes = V % 2 == 0 && kVectorBytes == 64 ? 64 : 32, kParts = V * 32 / kBytes, kFloats = kBytes / 4;
#pragma GCC unroll 4
    for (int64_t k = range.begin; k < range.end; ++k) {
        const float* from = inputs[static_cast<uint32_t>(part.columns[k])];
        float* to = outputs.row(part.packed_rows[k]);
        const Vec<float, kBytes> weight = splat<float, kBytes>(part.weights[k]);
        Vec<float, kBytes> sum[kParts];
        for (int v = 0; v < kParts; ++v)
            sum[v] = load<float, kBytes>(to + kFloats * v) + weight * load<float, kBytes>(from + kFloats * v);
        for (int v = 0; v < kParts; ++v) store<float, kBytes>(to + kFloats * v, sum[v]);
    }
}

// What a backward pass writes for a column's samples: nothing, the gradient, or that gradient where a ReLU, which gave
// the samples, let it pass.
enum class Slopes { none, plain, relu };

// gradient_k += sign_k x dy for a range of connections of a thin layer; with slopes also dx = sum of w dy of each
// column that has connections, and then the range is the whole layer.
//
// The sums of a column stay in registers: `same` empties them where a column begins, and what is stored for a
// connection is final if it is the column's last.
template <int V, Slopes slopes>
static void backward_thin(const SparsePart part, Range range, const float* x, const float* dy, float* dx) {
    const PanelAt<V> inputs(x, part.first_column), slopes_of_outputs(dy, 0), slopes_of_inputs(dx, part.first_column);
    Floats8 total[V] = {};
    int32_t column_before = -1;
    const auto one = [&](int64_t k) __attribute__((always_inline)) {
        const int32_t column = part.columns[k];
        const float *from = inputs[static_cast<uint32_t>(column)], *d = slopes_of_outputs.row(part.packed_rows[k]);
        Floats8 sum{}, slope[V], samples[V];
        for (int v = 0; v < V; ++v) {
            slope[v] = load<float, 32>(d + 8 * v);
            keep(slope[v]);
            samples[v] = load<float, 32>(from + 8 * v);
            if constexpr (slopes == Slopes::relu) keep(samples[v]);
            sum += slope[v] * samples[v];
        }
        if constexpr (slopes != Slopes::none) {
            float* to = slopes_of_inputs[static_cast<uint32_t>(column)];
            const Ints8 same = Ints8{} - static_cast<int32_t>(column == column_before);
            const Floats8 weight = splat<float, 32>(part.weights[k]);
            for (int v = 0; v < V; ++v) {
                total[v] = (Floats8)((Ints8)total[v] & same) + weight * slope[v];
                if constexpr (slopes == Slopes::relu)
                    store<float, 32>(to + 8 * v, samples[v] > 0.0f ? total[v] : Floats8{});
                else
                    store<float, 32>(to + 8 * v, total[v]);
            }
            column_before = column;
        }
        return sum;
    };
    int64_t k = range.begin;
    for (; k + 8 <= range.end; k += 8) {
        Floats8 sums[8];
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) sums[j] = one(k + j);
        const Ints8 sign = load<int32_t, 32>(part.packed_rows + k) & INT32_MIN;
        const Floats8 signed_sums = (Floats8)((Ints8)sum_lanes(sums) ^ sign);
        store<float, 32>(part.gradient + k, load<float, 32>(part.gradient + k) + signed_sums);
    }
    for (; k < range.end; ++k) part.gradient[k] += with_sign(sum_lanes(one(k)), part.packed_rows[k]);
}

template <int V>
static void forward_thick(const SparsePart& part, const float* x, float* y) {
    for (int64_t c = 0; c < part.n_in; ++c) {
        Floats8 samples[V];
        load_row<V>(x, c, samples);
        const int64_t end = part.colptr[c + 1] - part.colptr[0];
        for (int64_t k = part.colptr[c] - part.colptr[0]; k < end; ++k) {
            const float weight = with_sign(part.theta[k], part.packed_rows[k]);
            float* to = y + row_of(part.packed_rows[k]) * V * 8;
            for (int v = 0; v < V; ++v) store<float, 32>(to + 8 * v, load<float, 32>(to + 8 * v) + weight * samples[v]);
        }
    }
}

template <int V, bool Dx>
static void backward_thick(const SparsePart& part, const float* x, const float* dy, float* dx) {
    for (int64_t c = 0; c < part.n_in; ++c) {
        Floats8 samples[V], total[V] = {};
        load_row<V>(x, c, samples);
        const int64_t end = part.colptr[c + 1] - part.colptr[0];
        const auto one = [&](int64_t k) {
            const float weight = with_sign(part.theta[k], part.packed_rows[k]);
            Floats8 sum{};
            for (int v = 0; v < V; ++v) {
                const Floats8 d = load<float, 32>(dy + (row_of(part.packed_rows[k]) * V + v) * 8);
                sum += d * samples[v];
                if constexpr (Dx) total[v] += weight * d;
            }
            return sum;
        };
        int64_t k = part.colptr[c] - part.colptr[0];
        for (; k + 8 <= end; k += 8) {
            Floats8 sums[8];
            for (int i = 0; i < 8; ++i) sums[i] = one(k + i);
            const Ints8 sign = load<int32_t, 32>(part.packed_rows + k) & INT32_MIN;
            const Floats8 signed_sums = (Floats8)((Ints8)sum_lanes(sums) ^ sign);
            store<float, 32>(part.gradient + k, load<float, 32>(part.gradient + k) + signed_sums);
        }
        for (; k < end; ++k) part.gradient[k] += with_sign(sum_lanes(one(k)), part.packed_rows[k]);
        if constexpr (Dx) {
            for (int v = 0; v < V; ++v) store<float, 32>(dx + (c * V + v) * 8, total[v]);
        }
    }
}

// `ranges` are the connections whose column is not zero in all samples; only a thin layer looks at them.
template <int V>
static void forward_sparse(const SparsePart& part, const std::vector<Range>& ranges, const float* x, float* y) {
    if (part.columns == nullptr) return forward_thick<V>(part, x, y);
    for (const Range& range : ranges) forward_thin<V>(part, range, x, y);
}

// dx, unless it is null, becomes the gradient of what the function `activation` took to give x.
template <int V>
static void backward_sparse(const SparsePart& part, const std::vector<Range>& ranges, int32_t activation,
                            const float* x, const float* dy, float* dx) {
    if (part.columns == nullptr) {
        if (dx) backward_thick<V, true>(part, x, dy, dx);
        else backward_thick<V, false>(part, x, dy, dx);
        if (dx) activate_backward(activation, x, dx, part.n_in * V * 8);
        return;
    }
    if (dx) std::memset(dx, 0, static_cast<size_t>(part.n_in * V * 8) * sizeof(float));
    const auto backward = dx == nullptr            ? backward_thin<V, Slopes::none>
                          : activation == WB_RELU ? backward_thin<V, Slopes::relu>
                                                  : backward_thin<V, Slopes::plain>;
    for (const Range& range : ranges) backward(part, range, x, dy, dx);
    if (dx && activation != WB_RELU) activate_backward(activation, x, dx, part.n_in * V * 8);
}

}  // namespace wb::WB_ISA
