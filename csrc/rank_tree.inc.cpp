// How many of some sorted keys are at most a rank, for many ranks: a tree of which each level holds the last of every 16
// keys below. A search compares 16 keys at once on each level. It has no branch to guess, so the processor works on
// several searches side by side.
#pragma once

#include "simd.h"

namespace wb::WB_ISA {

constexpr int64_t kTreeKeys = 16;

// How many of 16 keys are at most the rank.
template <class Key>
WB_INLINE int64_t count_up_to(const Key* keys, Key rank) {
#if defined(__AVX512F__)
    if constexpr (sizeof(Key) == 4) {
        typedef Vec<int, 64> Ints16;
        const Ints16 edge = (Ints16)splat<int32_t, 64>(rank);
        constexpr int kLessOrEqual = 2;
        return __builtin_popcount(__builtin_ia32_cmpd512_mask((Ints16)load<int32_t, 64>(keys), edge, kLessOrEqual,
                                                              static_cast<unsigned short>(-1)));
    }
#elif defined(__AVX2__)
    if constexpr (sizeof(Key) == 4) {
        const auto above = [&](int64_t i) { return (Floats8)(load<int32_t, 32>(keys + i) > rank); };
        const int low = __builtin_ia32_movmskps256(above(0)), high = __builtin_ia32_movmskps256(above(8));
        return kTreeKeys - __builtin_popcount(static_cast<unsigned>(low | high << 8));
    }
#endif
    int64_t count = 0;
    for (int64_t i = 0; i < kTreeKeys; ++i) count += keys[i] <= rank;
    return count;
}

// Over keys that never fall. All of them, and all ranks, are below the largest number of their type.
template <class Key>
class RankTree {
public:
    // Numbers that a tree of n keys takes: each level has at least one above any rank.
    static int64_t size(int64_t n) {
        int64_t total = padded(n);
        for (; n > kTreeKeys; total += padded(n)) n /= kTreeKeys;
        return total;
    }

    // The n keys are at `keys`, with room for size(n) numbers.
    RankTree(Key* keys, int64_t n) : level_{keys}, levels_(1) {
        for (;; ++levels_) {
            Key* here = level_[levels_ - 1];
            for (int64_t i = n; i < padded(n); ++i) here[i] = std::numeric_limits<Key>::max();
            if (n <= kTreeKeys) return;
            Key* above = level_[levels_] = here + padded(n);
            n /= kTreeKeys;
            for (int64_t i = 0; i < n; ++i) above[i] = here[kTreeKeys * i + kTreeKeys - 1];
        }
    }

    // For n ranks.
    void count_up_to(const int64_t* ranks, int64_t n, int64_t* counts) const {
        int64_t t = 0;
        for (; t + 4 <= n; t += 4) search<4>(ranks + t, counts + t);
        for (; t < n; ++t) search<1>(ranks + t, counts + t);
    }

private:
    template <int N>
    WB_INLINE void search(const int64_t* ranks, int64_t* counts) const {
        int64_t found[N] = {};
        for (int level = levels_; level-- > 0;) {
            const Key* keys = level_[level];
#pragma GCC unroll 4
            for (int i = 0; i < N; ++i) {
                const Key* here = keys + kTreeKeys * found[i];
                found[i] = kTreeKeys * found[i] + WB_ISA::count_up_to(here, static_cast<Key>(ranks[i]));
            }
        }
        for (int i = 0; i < N; ++i) counts[i] = found[i];
    }

    static int64_t padded(int64_t n) { return (n / kTreeKeys + 1) * kTreeKeys; }

    Key* level_[16];  // 16^16 keys
    int levels_;
};

}  // namespace wb::WB_ISA
