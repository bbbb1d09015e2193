// Sums across the lanes of vectors, four vectors at a time: the gradient of a connection is a sum over the samples of a
// panel, and four such sums together cost little more than one.
#pragma once

#include "simd.h"

namespace wb::WB_ISA {

template <class T>
using Four = Vec<T, 4 * sizeof(T)>;

// The lane sums of v[0], v[1], v[2], v[3], in order. Each is added up in the same way, wherever it stands.
template <class T, int Bytes>
WB_INLINE Four<T> sum_lanes(const Vec<T, Bytes>* v) {
    if constexpr (Bytes == 64) {
        const Vec<T, 32> folded[4] = {fold<T, 64>(v[0]), fold<T, 64>(v[1]), fold<T, 64>(v[2]), fold<T, 64>(v[3])};
        return sum_lanes<T, 32>(folded);
    } else if constexpr (sizeof(T) == 4) {
        using V = Vec<T, Bytes>;
        const auto add_halves = [](V a, V b) {  // a0+a2 a1+a3 b2+b0 b3+b1, in every 16 bytes
            if constexpr (Bytes == 16) return WB_SHUFFLE(a, b, 0, 1, 6, 7) + WB_SHUFFLE(a, b, 2, 3, 4, 5);
            else return WB_SHUFFLE(a, b, 0, 1, 10, 11, 4, 5, 14, 15) + WB_SHUFFLE(a, b, 2, 3, 8, 9, 6, 7, 12, 13);
        };
        const auto add_pairs = [](V a, V b) {  // a0+a1 a2+a3 b0+b1 b2+b3
            if constexpr (Bytes == 16) return WB_SHUFFLE(a, b, 0, 2, 4, 6) + WB_SHUFFLE(a, b, 1, 3, 5, 7);
            else return WB_SHUFFLE(a, b, 0, 2, 8, 10, 4, 6, 12, 14) + WB_SHUFFLE(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
        };
        const V sums = add_pairs(add_halves(v[0], v[1]), add_halves(v[2], v[3]));
        if constexpr (Bytes == 16) return sums;
        else return fold<T, 32>(sums);
    } else {
        const auto low = unpack_low<T, Bytes>(v[0], v[1]) + unpack_high<T, Bytes>(v[0], v[1]);
        const auto high = unpack_low<T, Bytes>(v[2], v[3]) + unpack_high<T, Bytes>(v[2], v[3]);
        if constexpr (Bytes == 32) return halves_low<T>(low, high) + halves_high<T>(low, high);
        else return join<T>(low, high);
    }
}

// Lane i of the result is the sum of the lanes of v[i].
WB_INLINE Floats8 sum_lanes(const Floats8 v[8]) {
    Floats8 pair[4], four[2];
    for (int i = 0; i < 4; ++i)
        pair[i] = unpack_low<float, 32>(v[2 * i], v[2 * i + 1]) + unpack_high<float, 32>(v[2 * i], v[2 * i + 1]);
    for (int i = 0; i < 2; ++i)
        four[i] = pairs_low<float, 32>(pair[2 * i], pair[2 * i + 1]) + pairs_high<float, 32>(pair[2 * i], pair[2 * i + 1]);
    return halves_low<float>(four[0], four[1]) + halves_high<float>(four[0], four[1]);
}

WB_INLINE float sum_lanes(Floats8 v) {
    float sum = 0;
    for (int i = 0; i < 8; ++i) sum += v[i];
    return sum;
}

}  // namespace wb::WB_ISA
