// Winograd's transforms of vectors: from pixels and weights to their values at eight points along each axis, and back.
//
// The polynomials are taken at 0, ±1, ±2, ±1/2 and infinity.
#pragma once

#include "simd.h"

namespace wb::WB_ISA {

constexpr int kPoints = 8;  // along each axis

// The transforms along one axis. Names are those of the literature: with Bᵀ for inputs, G for weights and Aᵀ for outputs,
// an output is Aᵀ (G w ⊙ Bᵀ x). Gradients go through the transposed ones.
template <class T>
WB_INLINE void input_points(const Vec<T>* x, Vec<T>* v) {
    const Vec<T> even1 = x[2] + x[6] - T(4.25) * x[4], odd1 = x[1] + x[5] - T(4.25) * x[3];
    const Vec<T> even2 = T(0.25) * x[2] - T(1.25) * x[4] + x[6], odd2 = T(0.5) * x[1] - T(2.5) * x[3] + T(2) * x[5];
    const Vec<T> even3 = T(4) * x[2] - T(5) * x[4] + x[6], odd3 = T(2) * x[1] - T(2.5) * x[3] + T(0.5) * x[5];
    v[0] = x[0] - x[6] + T(5.25) * (x[4] - x[2]);
    v[1] = even1 + odd1, v[2] = even1 - odd1;
    v[3] = even2 + odd2, v[4] = even2 - odd2;
    v[5] = even3 + odd3, v[6] = even3 - odd3;
    v[7] = x[7] - x[1] + T(5.25) * (x[3] - x[5]);
}

template <class T>
WB_INLINE void input_gradient(const Vec<T>* v, Vec<T>* x) {
    const Vec<T> even1 = v[1] + v[2], odd1 = v[1] - v[2], even2 = v[3] + v[4], odd2 = v[3] - v[4];
    const Vec<T> even3 = v[5] + v[6], odd3 = v[5] - v[6];
    x[0] = v[0];
    x[1] = odd1 + T(0.5) * odd2 + T(2) * odd3 - v[7];
    x[2] = even1 + T(0.25) * even2 + T(4) * even3 - T(5.25) * v[0];
    x[3] = T(5.25) * v[7] - T(4.25) * odd1 - T(2.5) * (odd2 + odd3);
    x[4] = T(5.25) * v[0] - T(4.25) * even1 - T(1.25) * even2 - T(5) * even3;
    x[5] = odd1 + T(2) * odd2 + T(0.5) * odd3 - T(5.25) * v[7];
    x[6] = even1 + even2 + even3 - v[0];
    x[7] = v[7];
}

// The N coefficients of a polynomial at the eight points; for infinity the last of them. `scale` is of ±1, ±2 and ±1/2.
template <class T, int N>
WB_INLINE void polynomial_points(const Vec<T>* w, const T (&scale)[3], Vec<T>* v) {
    v[0] = w[0], v[7] = w[N - 1];
    for (int point = 0; point < 3; ++point) {
        const T base = point == 0 ? T(1) : point == 1 ? T(2) : T(0.5);
        Vec<T> even = w[0], odd = base * w[1];
        T power = base * base;
        for (int i = 2; i < N; ++i, power *= base) (i % 2 ? odd : even) += power * w[i];
        v[2 * point + 1] = scale[point] * (even + odd), v[2 * point + 2] = scale[point] * (even - odd);
    }
}

// The transposed of that.
template <class T, int N>
WB_INLINE void polynomial_sums(const Vec<T>* v, const T (&scale)[3], Vec<T>* w) {
    Vec<T> even[3], odd[3];
    for (int point = 0; point < 3; ++point) {
        even[point] = scale[point] * (v[2 * point + 1] + v[2 * point + 2]);
        odd[point] = scale[point] * (v[2 * point + 1] - v[2 * point + 2]);
    }
    T two = 1, half = 1;
    for (int i = 0; i < N; ++i, two *= T(2), half *= T(0.5)) {
        const Vec<T>* from = i % 2 ? odd : even;
        w[i] = from[0] + two * from[1] + half * from[2];
    }
    w[0] += v[0], w[N - 1] += v[7];
}

template <class T>
constexpr T kWeightScale[3] = {T(-2) / 9, T(1) / 90, T(32) / 45};
template <class T>
constexpr T kNoScale[3] = {1, 1, 1};

template <class T, int R>
WB_INLINE void weight_points(const Vec<T>* w, Vec<T>* u) { polynomial_points<T, R>(w, kWeightScale<T>, u); }
template <class T, int R>
WB_INLINE void weight_sums(const Vec<T>* u, Vec<T>* w) { polynomial_sums<T, R>(u, kWeightScale<T>, w); }
template <class T, int M>
WB_INLINE void output_points(const Vec<T>* y, Vec<T>* m) { polynomial_points<T, M>(y, kNoScale<T>, m); }
template <class T, int M>
WB_INLINE void output_sums(const Vec<T>* m, Vec<T>* y) { polynomial_sums<T, M>(m, kNoScale<T>, y); }

// The same transform along both axes of a square of In×In vectors, which from(i) reads: first its rows, then its columns.
// to(i, vector) takes the Out×Out results.
template <class T, int In, int Out, class From, class Line, class To>
WB_INLINE void both_axes(From&& from, Line&& line, To&& to) {
    Vec<T> turned[Out * In];
    for (int row = 0; row < In; ++row) {
        Vec<T> in[In], out[Out];
        for (int i = 0; i < In; ++i) in[i] = from(row * In + i);
        line(in, out);
        for (int i = 0; i < Out; ++i) turned[i * In + row] = out[i];
    }
    for (int column = 0; column < Out; ++column) {
        Vec<T> out[Out];
        line(turned + column * In, out);
        for (int i = 0; i < Out; ++i) to(i * Out + column, out[i]);
    }
}

}  // namespace wb::WB_ISA
