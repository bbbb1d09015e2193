// A square of numbers in registers, transposed: one vector of each of as many images as a vector has lanes. Images are
// often a multiple of 4 KB apart and then share the lines of a first cache, so a line is read whole, once.
#pragma once

#include "transpose.inc.cpp"

namespace wb::WB_ISA {

// As unpack_low, unpack_high, pairs_low and pairs_high (simd.h), for vectors of 64 bytes.
template <class T>
WB_INLINE void transpose_squares64(Vec<T, 64>* v) {
    using V = Vec<T, 64>;
    if constexpr (sizeof(T) == 4) {
        V ab[4];
        for (int i = 0; i < 2; ++i) {
            const V a = v[2 * i], b = v[2 * i + 1];
            ab[2 * i] = WB_SHUFFLE(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
            ab[2 * i + 1] = WB_SHUFFLE(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
        }
        for (int i = 0; i < 2; ++i) {
            const V a = ab[i], b = ab[i + 2];
            v[2 * i] = WB_SHUFFLE(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
            v[2 * i + 1] = WB_SHUFFLE(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
        }
    } else {
        const V a = v[0], b = v[1];
        v[0] = WB_SHUFFLE(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
        v[1] = WB_SHUFFLE(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
    }
}

// The four 16-byte blocks of four vectors, `step` vectors apart, as a matrix.
template <class V>
WB_INLINE void transpose_blocks64(V* v, int step) {
    using T = double;
    using Blocks = Vec<T, 64>;
    const auto even = [](Blocks a, Blocks b) { return WB_SHUFFLE(a, b, 0, 1, 4, 5, 8, 9, 12, 13); };
    const auto odd = [](Blocks a, Blocks b) { return WB_SHUFFLE(a, b, 2, 3, 6, 7, 10, 11, 14, 15); };
    Blocks in[4];
    for (int i = 0; i < 4; ++i) in[i] = (Blocks)v[i * step];
    const Blocks a = even(in[0], in[1]), b = odd(in[0], in[1]), c = even(in[2], in[3]), d = odd(in[2], in[3]);
    v[0] = (V)even(a, c);
    v[step] = (V)even(b, d);
    v[2 * step] = (V)odd(a, c);
    v[3 * step] = (V)odd(b, d);
}

// Lane j of vector i becomes lane i of vector j.
template <class T, int Bytes>
WB_INLINE void transpose_square(Vec<T, Bytes>* v) {
    constexpr int lanes = Bytes / sizeof(T), step = 16 / sizeof(T);
    for (int i = 0; i < lanes; i += step) {
        if constexpr (Bytes == 64) transpose_squares64<T>(v + i);
        else transpose_squares<T, Bytes>(v + i, v + i);
    }
    for (int j = 0; j < step; ++j) {
        if constexpr (Bytes == 64) {
            transpose_blocks64(v + j, step);
        } else if constexpr (Bytes == 32) {
            const Vec<T, 32> low = halves_low<T>(v[j], v[j + step]);
            v[j + step] = halves_high<T>(v[j], v[j + step]);
            v[j] = low;
        }
    }
}

}  // namespace wb::WB_ISA
