// Functions of vectors: exponential, sigmoid, hyperbolic tangent, activations and their slopes. A NaN stays one.
//
// There are two exponentials, and results depend on which: `exponential` runs to 0 and infinity as the softmax needs it,
// and stands behind the activations of stacks; `exponential_of`, of floats and doubles, ends where e^x is still a normal
// number, and keeps the digits of e^x - 1 as gates need them.
#pragma once

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "simd.h"

namespace wb::WB_ISA {

// e^x; 0 below about -87, infinity above about 88.
WB_INLINE Floats8 exponential(Floats8 x) {
    const Floats8 low = splat<float, 32>(-87.3f), high = splat<float, 32>(88.7f);
    x = x < low ? low : x;
    x = x > high ? high : x;
    // x = n ln 2 + r; adding and taking away 1.5 * 2^23 rounds to whole numbers.
    const Floats8 shifted = x * 1.44269504088896341f + 12582912.0f;
    const Floats8 n = shifted - 12582912.0f;
    Floats8 r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    Floats8 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    // 2^n in two factors, because n may be 128 and 2^128 is no number.
    const Ints8 exponent = (Ints8)shifted - 0x4b400000, half = exponent >> 1, rest = exponent - half;
    return p * (Floats8)((half + 127) << 23) * (Floats8)((rest + 127) << 23);
}

WB_INLINE Floats8 magnitude(Floats8 x) { return (Floats8)((Ints8)x & INT32_MAX); }

WB_INLINE Floats8 sigmoid(Floats8 x) {
    const Floats8 e = exponential(-magnitude(x)), one = splat<float, 32>(1.0f);
    return (x < 0.0f ? e : one) / (1.0f + e);
}

WB_INLINE Floats8 hyperbolic_tangent(Floats8 x) {
    const Floats8 size = magnitude(x), x2 = x * x;
    const Floats8 e = exponential(-2.0f * size);
    const Floats8 far = (Floats8)((Ints8)((1.0f - e) / (1.0f + e)) | ((Ints8)x & INT32_MIN));
    Floats8 near = x2 * -5.70498872745e-3f + 2.06390887954e-2f;
    near = near * x2 - 5.37397155531e-2f;
    near = near * x2 + 1.33314422036e-1f;
    near = near * x2 - 3.33332819422e-1f;
    near = near * (x2 * x) + x;
    return size < 0.625f ? near : far;
}

// The function of a layer, over n values (a multiple of 8). A NaN stays one.
static void activate(int32_t activation, float* values, int64_t n) {
    if (activation == WB_RELU) {
        for (int64_t i = 0; i < n; i += 8) {
            const Floats8 x = load<float, 32>(values + i);
            store<float, 32>(values + i, x < 0.0f ? Floats8{} : x);
        }
    } else if (activation == WB_TANH) {
        for (int64_t i = 0; i < n; i += 8) {
            const Floats8 x = load<float, 32>(values + i);
            store<float, 32>(values + i, hyperbolic_tangent(x));
        }
    } else if (activation == WB_SIGMOID) {
        for (int64_t i = 0; i < n; i += 8) {
            const Floats8 x = load<float, 32>(values + i);
            store<float, 32>(values + i, sigmoid(x));
        }
    }
}

// Gradients with respect to a layer's output become gradients with respect to what went into its function. All slopes
// follow from the output.
static void activate_backward(int32_t activation, const float* outputs, float* gradients, int64_t n) {
    if (activation == WB_IDENTITY) return;
    for (int64_t i = 0; i < n; i += 8) {
        const Floats8 y = load<float, 32>(outputs + i), g = load<float, 32>(gradients + i);
        Floats8 result;
        if (activation == WB_RELU) result = y > 0.0f ? g : Floats8{};
        else if (activation == WB_TANH) result = g * (1.0f - y * y);
        else result = g * (y * (1.0f - y));
        store<float, 32>(gradients + i, result);
    }
}

// The compiler does not make the one instruction of a comparison and a choice, though on x86 they agree for NaN too.
template <class T, int Bytes>
WB_INLINE Vec<T, Bytes> at_least(Vec<T, Bytes> x, T low) {
    const Vec<T, Bytes> edge = splat<T, Bytes>(low);
#if defined(__AVX__)
    if constexpr (Bytes == 32 && sizeof(T) == 4) return __builtin_ia32_maxps256(edge, x);
    if constexpr (Bytes == 32 && sizeof(T) == 8) return __builtin_ia32_maxpd256(edge, x);
#endif
#if defined(__AVX512F__)
    // With a mask of all lanes: the plain functions start from an undefined vector, of which compilers warn.
    if constexpr (Bytes == 64 && sizeof(T) == 4) return _mm512_maskz_max_ps(0xffff, (__m512)edge, (__m512)x);
    if constexpr (Bytes == 64 && sizeof(T) == 8) return _mm512_maskz_max_pd(0xff, (__m512d)edge, (__m512d)x);
#endif
    return x < edge ? edge : x;
}
template <class T, int Bytes>
WB_INLINE Vec<T, Bytes> at_most(Vec<T, Bytes> x, T high) {
    const Vec<T, Bytes> edge = splat<T, Bytes>(high);
#if defined(__AVX__)
    if constexpr (Bytes == 32 && sizeof(T) == 4) return __builtin_ia32_minps256(edge, x);
    if constexpr (Bytes == 32 && sizeof(T) == 8) return __builtin_ia32_minpd256(edge, x);
#endif
#if defined(__AVX512F__)
    if constexpr (Bytes == 64 && sizeof(T) == 4) return _mm512_maskz_min_ps(0xffff, (__m512)edge, (__m512)x);
    if constexpr (Bytes == 64 && sizeof(T) == 8) return _mm512_maskz_min_pd(0xff, (__m512d)edge, (__m512d)x);
#endif
    return x > edge ? edge : x;
}

// Beyond this e^x and e^-x are infinity and zero for our purposes, and 2^n below is no longer a normal number.
template <class T>
constexpr T kLargestExponent = sizeof(T) == 4 ? T(87) : T(708);

// e^x = scale + scale * rest, for |x| up to kLargestExponent: x = n ln 2 + r, scale = 2^n, rest = e^r - 1.
template <class T, int Bytes>
struct Exponential {
    Vec<T, Bytes> scale, rest;
};

template <class T, int Bytes>
WB_INLINE Exponential<T, Bytes> exponential_of(Vec<T, Bytes> x) {
    using V = Vec<T, Bytes>;
    using B = BitsVec<T, Bytes>;
    // Adding 1.5 * 2^(bits of the mantissa) rounds to whole numbers, which then stand in the lowest bits.
    if constexpr (sizeof(T) == 4) {
        const V shifted = x * 1.44269504088896341f + 12582912.0f;
        const V n = shifted - 12582912.0f;
        const V r = x - n * 0.69314718056f;
        // (e^r - 1 - r) / r^2, best for |r| <= ln 2 / 2: 1.4e-8 of r. In pairs: a chain would have the next steps wait.
        const V r2 = r * r;
        const V low = r * 1.6666542793e-1f + 5.0000000621e-1f;
        const V high = r * 8.3666106901e-3f + 4.1666281411e-2f;
        const V p = (r2 * 1.3946496038e-3f + high) * r2 + low;
        return {(V)(((B)shifted - (0x4b400000 - 127)) << 23), p * r2 + r};
    } else {
        const V shifted = x * 1.44269504088896341 + 6755399441055744.0;
        const V n = shifted - 6755399441055744.0;
        V r = x - n * 6.93147180369123816490e-01;
        r = r - n * 1.90821492927058770002e-10;
        V p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;  // the series up to r^13 / 13!
        p = p * r + 1.0 / 39916800.0;
        p = p * r + 1.0 / 3628800.0;
        p = p * r + 1.0 / 362880.0;
        p = p * r + 1.0 / 40320.0;
        p = p * r + 1.0 / 5040.0;
        p = p * r + 1.0 / 720.0;
        p = p * r + 1.0 / 120.0;
        p = p * r + 1.0 / 24.0;
        p = p * r + 1.0 / 6.0;
        p = p * r + 0.5;
        return {(V)(((B)shifted - (0x4338000000000000 - 1023)) << 52), p * (r * r) + r};
    }
}

// 1 / (1 + e^-x)
template <class T, int Bytes>
WB_INLINE Vec<T, Bytes> sigmoid_of(Vec<T, Bytes> x) {
    x = at_most<T, Bytes>(at_least<T, Bytes>(x, -kLargestExponent<T>), kLargestExponent<T>);
    const auto e = exponential_of<T, Bytes>(-x);
    return T(1) / (T(1) + (e.scale + e.scale * e.rest));
}

// With u = e^(-2|x|) - 1, which keeps its digits where x is small: tanh |x| = -u / (2 + u).
template <class T, int Bytes>
WB_INLINE Vec<T, Bytes> tanh_of(Vec<T, Bytes> x) {
    using V = Vec<T, Bytes>;
    using B = BitsVec<T, Bytes>;
    constexpr Bits<T> top = std::numeric_limits<Bits<T>>::min();
    const B sign = (B)x & top;
    const V size = (V)((B)x & ~top);
    const auto e = exponential_of<T, Bytes>(at_least<T, Bytes>(T(-2) * size, -kLargestExponent<T>));
    const V u = e.scale * e.rest + (e.scale - T(1));
    return (V)((B)((T(0) - u) / (T(2) + u)) | sign);
}

}  // namespace wb::WB_ISA
