// Portable vectors: GCC and Clang vector extensions, as wide as the instruction set; every instruction set has its own.
#pragma once

#include "isa.h"

namespace wb::WB_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

#define WB_INLINE inline __attribute__((always_inline))

// WB_SHUFFLE(a, b, i...): lanes of the concatenation of a and b, both as wide as the result.
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define WB_HAS_SHUFFLEVECTOR 1
#endif
#endif
#ifdef WB_HAS_SHUFFLEVECTOR
#define WB_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else  // GCC before 12
#define WB_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, BitsVec<T, sizeof(a)>{__VA_ARGS__})
#endif

// The integer a number's bits fit in.
template <class T>
struct BitsOf;
template <>
struct BitsOf<float> {
    using Type = int32_t;
};
template <>
struct BitsOf<double> {
    using Type = int64_t;
};
template <class T>
using Bits = typename BitsOf<T>::Type;

// Vec<float, 32> is a vector of eight floats. Loads and stores go through Unaligned, which promises no alignment and
// may alias anything.
template <class T, int Bytes>
struct VecOf {
    typedef T Type __attribute__((vector_size(Bytes)));
    typedef T Unaligned __attribute__((vector_size(Bytes), aligned(alignof(T)), may_alias));
};
template <class T, int Bytes = kVectorBytes>
using Vec = typename VecOf<T, Bytes>::Type;
template <class T, int Bytes = kVectorBytes>
using BitsVec = Vec<Bits<T>, Bytes>;
typedef Vec<float, 32> Floats8;
typedef Vec<int32_t, 32> Ints8;
typedef Vec<uint32_t, 32> Words8;

WB_INLINE int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

template <class T, int Bytes = kVectorBytes>
WB_INLINE Vec<T, Bytes> load(const void* from) {
    return *static_cast<const typename VecOf<T, Bytes>::Unaligned*>(from);
}
template <class T, int Bytes = kVectorBytes>
WB_INLINE void store(void* to, Vec<T, Bytes> value) {
    *static_cast<typename VecOf<T, Bytes>::Unaligned*>(to) = value;
}
template <class T, int Bytes = kVectorBytes>
WB_INLINE Vec<T, Bytes> splat(T value) {
    return value - Vec<T, Bytes>{};
}

// A 32-byte vector from two of 16 bytes; from memory it is one load and one insert.
template <class T>
WB_INLINE Vec<T, 32> join(Vec<T, 16> low, Vec<T, 16> high) {
#ifdef WB_HAS_SHUFFLEVECTOR
    if constexpr (sizeof(T) == 4) return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
    else return __builtin_shufflevector(low, high, 0, 1, 2, 3);
#else
    if constexpr (sizeof(T) == 4)
        return Vec<T, 32>{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
    else return Vec<T, 32>{low[0], low[1], high[0], high[1]};
#endif
}

// Interleaves within each 16 bytes: unpack_low takes the first halves of a and b there, unpack_high the second.
template <class T, int Bytes>
WB_INLINE Vec<T, Bytes> unpack_low(Vec<T, Bytes> a, Vec<T, Bytes> b) {
    if constexpr (sizeof(T) == 4 && Bytes == 16) return WB_SHUFFLE(a, b, 0, 4, 1, 5);
    else if constexpr (sizeof(T) == 4) return WB_SHUFFLE(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
    else if constexpr (Bytes == 16) return WB_SHUFFLE(a, b, 0, 2);
    else return WB_SHUFFLE(a, b, 0, 4, 2, 6);
}
template <class T, int Bytes>
WB_INLINE Vec<T, Bytes> unpack_high(Vec<T, Bytes> a, Vec<T, Bytes> b) {
    if constexpr (sizeof(T) == 4 && Bytes == 16) return WB_SHUFFLE(a, b, 2, 6, 3, 7);
    else if constexpr (sizeof(T) == 4) return WB_SHUFFLE(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    else if constexpr (Bytes == 16) return WB_SHUFFLE(a, b, 1, 3);
    else return WB_SHUFFLE(a, b, 1, 5, 3, 7);
}
// The same for pairs of floats.
template <class T, int Bytes>
WB_INLINE Vec<T, Bytes> pairs_low(Vec<T, Bytes> a, Vec<T, Bytes> b) {
    static_assert(sizeof(T) == 4, "pairs of floats");
    if constexpr (Bytes == 16) return WB_SHUFFLE(a, b, 0, 1, 4, 5);
    else return WB_SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
}
template <class T, int Bytes>
WB_INLINE Vec<T, Bytes> pairs_high(Vec<T, Bytes> a, Vec<T, Bytes> b) {
    static_assert(sizeof(T) == 4, "pairs of floats");
    if constexpr (Bytes == 16) return WB_SHUFFLE(a, b, 2, 3, 6, 7);
    else return WB_SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
}
// The first (second) 16 bytes of a and of b, for 32-byte vectors.
template <class T>
WB_INLINE Vec<T, 32> halves_low(Vec<T, 32> a, Vec<T, 32> b) {
    if constexpr (sizeof(T) == 4) return WB_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
    else return WB_SHUFFLE(a, b, 0, 1, 4, 5);
}
template <class T>
WB_INLINE Vec<T, 32> halves_high(Vec<T, 32> a, Vec<T, 32> b) {
    if constexpr (sizeof(T) == 4) return WB_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    else return WB_SHUFFLE(a, b, 2, 3, 6, 7);
}

// The sum of the two halves of a vector.
template <class T, int Bytes>
WB_INLINE Vec<T, Bytes / 2> fold(Vec<T, Bytes> v) {
#ifdef WB_HAS_SHUFFLEVECTOR
    constexpr int lanes = Bytes / static_cast<int>(sizeof(T));
    if constexpr (lanes == 4) return __builtin_shufflevector(v, v, 0, 1) + __builtin_shufflevector(v, v, 2, 3);
    else if constexpr (lanes == 8)
        return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
    else
        return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
               __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#else
    Vec<T, Bytes / 2> half[2];
    std::memcpy(half, &v, sizeof v);
    return half[0] + half[1];
#endif
}

// Keeps a loaded vector in its register: GCC would rather load it again for every use, and loads are what is scarce. A
// vector wider than a register is left alone.
template <class V>
WB_INLINE void keep(V& value) {
    if constexpr (sizeof(V) <= kVectorBytes) {
#if defined(__x86_64__)
        __asm__("" : "+v"(value));
#elif defined(__aarch64__)
        __asm__("" : "+w"(value));
#endif
    }
    (void)value;
}

// Keeps a product from being fused with the addition that follows.
template <class V>
WB_INLINE void keep_apart(V& product) {
#if defined(__x86_64__)
    keep(product);
#else
    (void)product;
#endif
}

#if defined(__AVX2__)
// For each byte of bits, in eight bytes: the numbers of those that are set, in order; and for each bit how many are not
// set before it.
struct LaneTables {
    uint64_t set[256] = {}, before[256] = {};

    constexpr LaneTables() {
        for (int bits = 0; bits < 256; ++bits) {
            int found = 0;
            for (int lane = 0; lane < 8; ++lane) {
                before[bits] |= static_cast<uint64_t>(lane - found) << 8 * lane;
                if (bits >> lane & 1) set[bits] |= static_cast<uint64_t>(lane) << 8 * found++;
            }
        }
    }
};
static constexpr LaneTables kLanes;

WB_INLINE Ints8 bytes_as_ints(uint64_t bytes) {
    typedef char Bytes __attribute__((vector_size(16)));
    return (Ints8)__builtin_ia32_pmovzxbd256((Bytes)Vec<uint64_t, 16>{bytes, 0});
}
#endif

// Bit i: whether values[i] < 0, for eight values.
template <class T>
WB_INLINE unsigned negative_bits(const T* values) {
#if defined(__AVX__)
    if constexpr (sizeof(T) == 4)
        return static_cast<unsigned>(__builtin_ia32_movmskps256((Floats8)(load<float, 32>(values) < 0.0f)));
#endif
    unsigned bits = 0;
    for (int i = 0; i < 8; ++i) bits |= static_cast<unsigned>(values[i] < 0) << i;
    return bits;
}

}  // namespace wb::WB_ISA
