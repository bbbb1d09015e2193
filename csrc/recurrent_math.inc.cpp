// Vector functions of the recurrent layers: sigmoid and hyperbolic tangent of floats and doubles. A NaN stays one.

// The compiler does not make the one instruction of a comparison and a choice, though on x86 they agree for NaN too.
template <class T, int Bytes>
WB_INLINE Vec<T, Bytes> at_least(Vec<T, Bytes> x, T low) {
    const Vec<T, Bytes> edge = splat<T, Bytes>(low);
#if defined(__AVX__)
    if constexpr (Bytes == 32 && sizeof(T) == 4) return __builtin_ia32_maxps256(edge, x);
    if constexpr (Bytes == 32 && sizeof(T) == 8) return __builtin_ia32_maxpd256(edge, x);
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
        V r = x - n * 0.693359375f;
        r = r - n * -2.12194440e-4f;
        // In pairs: a chain of six would have the next steps wait.
        const V r2 = r * r;
        const V high = r * 1.9875691500e-4f + 1.3981999507e-3f;
        const V middle = r * 8.3334519073e-3f + 4.1665795894e-2f;
        const V low = r * 1.6666665459e-1f + 5.0000001201e-1f;
        const V p = (high * r2 + middle) * r2 + low;
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
