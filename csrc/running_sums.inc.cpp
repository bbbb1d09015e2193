// Running sums: each number plus all before it. Within a vector they take three additions, and only the last of its sums
// is what the next vector waits for.
#pragma once

#include "simd.h"

namespace wb::WB_ISA {

#if defined(__AVX2__)
// Each lane plus all before it.
WB_INLINE Ints8 running_sums(Ints8 v) {
    typedef Vec<long long, 32> Wides;
    typedef Vec<int, 32> Lanes;
    v += (Ints8)__builtin_ia32_pslldqi256((Wides)v, 32);
    v += (Ints8)__builtin_ia32_pslldqi256((Wides)v, 64);
    const Ints8 third = {3, 3, 3, 3, 3, 3, 3, 3}, upper = {0, 0, 0, 0, -1, -1, -1, -1};
    return v + ((Ints8)__builtin_ia32_permvarsi256((Lanes)v, (Lanes)third) & upper);
}
// The last lane in all of them.
WB_INLINE Ints8 last_lane(Ints8 v) {
    typedef Vec<int, 32> Lanes;
    const Ints8 last = {7, 7, 7, 7, 7, 7, 7, 7};
    return (Ints8)__builtin_ia32_permvarsi256((Lanes)v, (Lanes)last);
}
#endif

// values[i] becomes the sum of values[0 .. i].
static void sum_up(int32_t* values, int64_t n) {
    int64_t i = 0;
    int32_t sum = 0;
#if defined(__AVX2__)
    Ints8 before{};
    for (; i + 8 <= n; i += 8) {
        const Ints8 sums = running_sums(load<int32_t, 32>(values + i));
        store<int32_t, 32>(values + i, sums + before);
        before += last_lane(sums);
    }
    sum = before[0];
#endif
    for (; i < n; ++i) values[i] = sum += values[i];
}

// to[i] += the sum of values[0 .. i], which must fit 32 bits.
static void add_running_sums(const int32_t* values, int64_t n, int64_t* to) {
    int64_t i = 0, sum = 0;
#if defined(__AVX2__)
    Ints8 before{};
    for (; i + 8 <= n; i += 8) {
        const Ints8 sums = running_sums(load<int32_t, 32>(values + i)), all = sums + before;
        Vec<int32_t, 16> halves[2];
        std::memcpy(halves, &all, sizeof halves);
        for (int half = 0; half < 2; ++half) {
            int64_t* pointer = to + i + 4 * half;
            store<int64_t, 32>(pointer, load<int64_t, 32>(pointer) + __builtin_convertvector(halves[half], Vec<int64_t, 32>));
        }
        before += last_lane(sums);
    }
    sum = before[0];
#else
    for (; i + 4 <= n; i += 4) {  // sums of four do not wait for the four before
        const int64_t one = values[i], two = one + values[i + 1], three = two + values[i + 2], four = three + values[i + 3];
        to[i] += sum + one;
        to[i + 1] += sum + two;
        to[i + 2] += sum + three;
        to[i + 3] += sum += four;
    }
#endif
    for (; i < n; ++i) to[i] += sum += values[i];
}

}  // namespace wb::WB_ISA
