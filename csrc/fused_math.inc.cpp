// Vector functions of the fused step: exponential, activations and their slopes, sums across lanes.

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

// Row i becomes lane i.
WB_INLINE void transpose8(Floats8 rows[8]) {
    Floats8 a[8], b[8];
    for (int i = 0; i < 4; ++i) {
        a[2 * i] = unpack_low<float, 32>(rows[2 * i], rows[2 * i + 1]);
        a[2 * i + 1] = unpack_high<float, 32>(rows[2 * i], rows[2 * i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        b[i] = pairs_low<float, 32>(a[i], a[i + 2]);
        b[i + 1] = pairs_high<float, 32>(a[i], a[i + 2]);
        b[i + 2] = pairs_low<float, 32>(a[i + 1], a[i + 3]);
        b[i + 3] = pairs_high<float, 32>(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
        rows[i] = halves_low<float>(b[i], b[i + 4]);
        rows[i + 4] = halves_high<float>(b[i], b[i + 4]);
    }
}

// The same for four rows; lanes 4 to 7 repeat other values of the block.
WB_INLINE void transpose4(const Floats8 rows[4], Floats8 columns[8]) {
    const Floats8 a0 = unpack_low<float, 32>(rows[0], rows[1]), a1 = unpack_high<float, 32>(rows[0], rows[1]);
    const Floats8 a2 = unpack_low<float, 32>(rows[2], rows[3]), a3 = unpack_high<float, 32>(rows[2], rows[3]);
    columns[0] = pairs_low<float, 32>(a0, a2);
    columns[1] = pairs_high<float, 32>(a0, a2);
    columns[2] = pairs_low<float, 32>(a1, a3);
    columns[3] = pairs_high<float, 32>(a1, a3);
    for (int i = 0; i < 4; ++i) columns[i + 4] = halves_high<float>(columns[i], columns[i]);
}
