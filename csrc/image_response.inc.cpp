// Local response normalisation over channels and its gradient, for one image [channels][pixels]:
//     y = x d^-beta,  d = bias + alpha * (sum of x^2 over the channels up to `radius` away),  x being max(0, input).
// A vector holds neighbouring pixels of one channel, so neighbouring channels are neighbouring vectors.
#pragma once

#include "simd.h"

namespace wb::WB_ISA {

// d^-1/4 for d > 0, to the last bit or two: a guess from the exponent, and Newton's steps for t^-4 = d, which need neither
// a root nor a division. A NaN stays one.
template <class T, int Bytes>
WB_INLINE Vec<T, Bytes> inverse_fourth_root(Vec<T, Bytes> d) {
    using V = Vec<T, Bytes>;
    using B = BitsVec<T, Bytes>;
    constexpr Bits<T> start = sizeof(T) == 4 ? Bits<T>(0x4f586000) : static_cast<Bits<T>>(0x4feb0c0000000000);
    V t = (V)(start - ((B)d >> 2));
    const V quarter = d * T(0.25);
    for (int i = 0; i < (sizeof(T) == 4 ? 3 : 4); ++i) {
        const V t2 = t * t;
        t = t * (T(1.25) - quarter * (t2 * t2));
    }
    return t;
}

template <class T>
class Response {
public:
    static constexpr int64_t kLanes = kVectorBytes / sizeof(T);
    using V = Vec<T>;

    explicit Response(const wb_pool_norm& shape)
        : channels_(shape.channels), radius_(std::min(shape.radius, shape.channels)), alpha_(static_cast<T>(shape.alpha)),
          beta_(static_cast<T>(shape.beta)), bias_(static_cast<T>(shape.bias)), usual_(shape.beta == 0.75) {}

    // Numbers of working memory for one block of pixels.
    int64_t scratch_size() const { return (3 * channels_ + 4 * radius_) * kLanes; }

    // y of all pixels; y may be x.
    void forward(const T* x, T* y, int64_t pixels, T* memory) const { of_radius<Forward>(x, nullptr, y, pixels, memory); }

    // dx, with the slope of max(0, .) as a factor, from the gradient to y; dx may be dy.
    void backward(const T* x, const T* dy, T* dx, int64_t pixels, T* memory) const {
        of_radius<Backward>(x, dy, dx, pixels, memory);
    }

private:
    struct Power {
        V scale, inverse;  // d^-beta and 1 / d
    };

    int64_t channels_, radius_;
    T alpha_, beta_, bias_;
    bool usual_;

    // The usual radius is known to the compiler. Works on a copy: stores of vectors might change *this for all it knows.
    template <template <int> class Pass>
    void of_radius(const T* x, const T* dy, T* out, int64_t pixels, T* memory) const {
        const Response self = *this;
        if (radius_ == 4) Pass<4>::run(self, x, dy, out, pixels, memory);
        else Pass<-1>::run(self, x, dy, out, pixels, memory);
    }

    template <int Radius>
    struct Forward {
        static WB_INLINE void run(const Response& self, const T* x, const T*, T* y, int64_t pixels, T* memory) {
            const int64_t channels = self.channels_, radius = Radius < 0 ? self.radius_ : Radius;
            clear_ends(memory, channels, radius);
            for (int64_t at = 0; at < pixels; at += kLanes) {
                const int64_t count = std::min(kLanes, pixels - at);
                for (int64_t c = 0; c < channels; ++c) {
                    const V value = positive(read(x + at + c * pixels, count));
                    store<T>(memory + (c + radius) * kLanes, value * value);
                }
                for (int64_t c = 0; c < channels; ++c) {
                    const V value = positive(read(x + at + c * pixels, count));
                    const V d = self.bias_ + self.alpha_ * window(memory + c * kLanes, radius);
                    write(y + at + c * pixels, count, value * self.power(d).scale);
                }
            }
        }
    };

    template <int Radius>
    struct Backward {
        static WB_INLINE void run(const Response& self, const T* x, const T* dy, T* dx, int64_t pixels, T* memory) {
            const int64_t channels = self.channels_, radius = Radius < 0 ? self.radius_ : Radius;
            T* own = memory + (channels + 2 * radius) * kLanes;
            T* shared = own + channels * kLanes;
            clear_ends(memory, channels, radius);
            clear_ends(shared, channels, radius);
            const T factor = T(-2) * self.alpha_ * self.beta_;
            for (int64_t at = 0; at < pixels; at += kLanes) {
                const int64_t count = std::min(kLanes, pixels - at);
                for (int64_t c = 0; c < channels; ++c) {
                    const V value = positive(read(x + at + c * pixels, count));
                    store<T>(memory + (c + radius) * kLanes, value * value);
                }
                for (int64_t c = 0; c < channels; ++c) {
                    const Power p = self.power(self.bias_ + self.alpha_ * window(memory + c * kLanes, radius));
                    const V mine = read(dy + at + c * pixels, count) * p.scale;
                    store<T>(own + c * kLanes, mine);
                    const V value = positive(read(x + at + c * pixels, count));
                    store<T>(shared + (c + radius) * kLanes, mine * value * p.inverse);
                }
                for (int64_t c = 0; c < channels; ++c) {
                    const V value = read(x + at + c * pixels, count);
                    const V slope = load<T>(own + c * kLanes) + factor * value * window(shared + c * kLanes, radius);
                    write(dx + at + c * pixels, count, value <= T(0) ? V{} : slope);
                }
            }
        }
    };

    // A NaN stays one.
    static WB_INLINE V positive(V x) { return x < T(0) ? V{} : x; }

    static WB_INLINE V read(const T* from, int64_t count) {
        if (count == kLanes) return load<T>(from);
        V part{};
        std::memcpy(&part, from, static_cast<size_t>(count) * sizeof(T));
        return part;
    }
    static WB_INLINE void write(T* to, int64_t count, V value) {
        if (count == kLanes) store<T>(to, value);
        else std::memcpy(to, &value, static_cast<size_t>(count) * sizeof(T));
    }

    // Zeros for the channels before the first and after the last.
    static void clear_ends(T* rows, int64_t channels, int64_t radius) {
        for (int64_t i = 0; i < radius * kLanes; ++i) rows[i] = rows[(channels + radius) * kLanes + i] = T(0);
    }
    // The sum of 2 radius + 1 rows.
    static WB_INLINE V window(const T* row, int64_t radius) {
        V even = load<T>(row), odd{};
        for (int64_t i = 1; i < 2 * radius; i += 2) {
            odd += load<T>(row + i * kLanes);
            even += load<T>(row + (i + 1) * kLanes);
        }
        return even + odd;
    }

    WB_INLINE Power power(V d) const {
        if (usual_) {
            const V t = inverse_fourth_root<T, kVectorBytes>(d), t2 = t * t;
            return {t2 * t, t2 * t2};
        }
        V scale;
        for (int64_t i = 0; i < kLanes; ++i) scale[i] = std::pow(d[i], -beta_);
        return {scale, T(1) / d};
    }
};

}  // namespace wb::WB_ISA
