// Dense layers and biases of the fused step, on panels [feature][V * 8 samples]; weights are [n_out][n_in].
#pragma once

#include "lane_sums.inc.cpp"
#include "panels.inc.cpp"

namespace wb::WB_ISA {

// y = bias (or 0) in every sample.
template <int V>
static void start_outputs(const float* bias, int64_t n_out, float* y) {
    for (int64_t row = 0; row < n_out; ++row) {
        const Floats8 value = splat<float, 32>(bias ? bias[row] : 0.0f);
        for (int v = 0; v < V; ++v) store<float, 32>(y + (row * V + v) * 8, value);
    }
}

// y += W x for R rows at a time, so that each load of x serves R products.
template <int V, int R>
WB_INLINE void forward_rows(const float* weight, int64_t n_in, const float* x, float* y) {
    Floats8 sum[R][V];
    for (int r = 0; r < R; ++r) load_row<V>(y, r, sum[r]);
    for (int64_t c = 0; c < n_in; ++c) {
        Floats8 samples[V];
        load_row<V>(x, c, samples);
        for (int r = 0; r < R; ++r)
            for (int v = 0; v < V; ++v) sum[r][v] += weight[r * n_in + c] * samples[v];
    }
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) store<float, 32>(y + (r * V + v) * 8, sum[r][v]);
}

template <int V>
static void forward_dense(const float* weight, int64_t n_in, int64_t n_out, const float* x, float* y) {
    constexpr int R = V <= 2 ? 4 : 2;
    int64_t row = 0;
    for (; row + R <= n_out; row += R) forward_rows<V, R>(weight + row * n_in, n_in, x, y + row * V * 8);
    for (; row < n_out; ++row) forward_rows<V, 1>(weight + row * n_in, n_in, x, y + row * V * 8);
}

// dx = W^T dy for C columns at a time.
template <int V, int C>
WB_INLINE void backward_columns(const float* weight, int64_t n_in, int64_t n_out, const float* dy, float* dx) {
    Floats8 sum[C][V] = {};
    for (int64_t row = 0; row < n_out; ++row) {
        Floats8 d[V];
        load_row<V>(dy, row, d);
        for (int c = 0; c < C; ++c)
            for (int v = 0; v < V; ++v) sum[c][v] += weight[row * n_in + c] * d[v];
    }
    for (int c = 0; c < C; ++c)
        for (int v = 0; v < V; ++v) store<float, 32>(dx + (c * V + v) * 8, sum[c][v]);
}

// gradient[row][c] += x_c dy_row, and dx = W^T dy unless dx is null.
template <int V>
static void backward_dense(const float* weight, int64_t n_in, int64_t n_out, const float* x, const float* dy,
                           float* gradient, float* dx) {
    for (int64_t row = 0; row < n_out; ++row) {
        Floats8 d[V];
        load_row<V>(dy, row, d);
        float* to = gradient + row * n_in;
        const auto product = [&](int64_t c) {
            Floats8 sum{};
            for (int v = 0; v < V; ++v) sum += d[v] * load<float, 32>(x + (c * V + v) * 8);
            return sum;
        };
        int64_t c = 0;
        for (; c + 8 <= n_in; c += 8) {
            Floats8 sums[8];
            for (int i = 0; i < 8; ++i) sums[i] = product(c + i);
            store<float, 32>(to + c, load<float, 32>(to + c) + sum_lanes(sums));
        }
        for (; c < n_in; ++c) to[c] += sum_lanes(product(c));
    }
    if (dx == nullptr) return;
    constexpr int C = V <= 2 ? 4 : 2;
    int64_t c = 0;
    for (; c + C <= n_in; c += C) backward_columns<V, C>(weight + c, n_in, n_out, dy, dx + c * V * 8);
    for (; c < n_in; ++c) backward_columns<V, 1>(weight + c, n_in, n_out, dy, dx + c * V * 8);
}

template <int V>
static void backward_bias(int64_t n_out, const float* dy, float* gradient) {
    for (int64_t row = 0; row < n_out; ++row) {
        Floats8 sum{};
        for (int v = 0; v < V; ++v) sum += load<float, 32>(dy + (row * V + v) * 8);
        gradient[row] += sum_lanes(sum);
    }
}

}  // namespace wb::WB_ISA
