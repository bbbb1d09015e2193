// Between images [image][channel][row][column] and panels or lines [channel][place][image].
#pragma once

#include "conv_shape.inc.cpp"
#include "conv_transpose.inc.cpp"

namespace wb::WB_ISA {

// Where each pixel of a channel is, in numbers from the channel's start, or -1 if nothing sees it.
struct PixelMap {
    int64_t width = 1, channel = 0;  // pixels of a row; numbers from a channel to the next
    int64_t run = 1, seen = 1;       // pixels that follow each other, and how many of them are seen if the first is
    std::vector<int64_t> offsets;

    int64_t pixels() const { return static_cast<int64_t>(offsets.size()); }
};

// Pixels of the input, split into phases; the first place is at the start.
static PixelMap map_input(const ConvShape& shape, int64_t phase_stride, int64_t row_stride, int64_t first_row,
                          int64_t first_column) {
    const ConvAxis &ay = shape.y, &ax = shape.x;
    PixelMap map;
    map.width = ax.in;
    map.channel = shape.phases() * phase_stride;
    if (ax.stride == 1) map.run = ax.in, map.seen = std::clamp<int64_t>(ax.places() - ax.before, 0, ax.in);
    map.offsets.reserve(static_cast<size_t>(ay.in * ax.in));
    for (int64_t row = 0; row < ay.in; ++row) {
        for (int64_t column = 0; column < ax.in; ++column) {
            const int64_t y = ay.phase_of_input(row), x = ax.phase_of_input(column);
            map.offsets.push_back(y < 0 || x < 0 ? -1
                                                 : (y * ax.phases + x) * phase_stride +
                                                       (ay.place_of_input(row) - first_row) * row_stride +
                                                       (ax.place_of_input(column) - first_column) * shape.images);
        }
    }
    return map;
}

// Pixels of the output; `top` and `left` are the zeros before them.
static PixelMap map_output(const ConvShape& shape, int64_t channel, int64_t row_stride, int64_t top, int64_t left) {
    PixelMap map;
    map.width = map.run = map.seen = shape.x.out;
    map.channel = channel;
    map.offsets.reserve(static_cast<size_t>(shape.y.out * shape.x.out));
    for (int64_t row = 0; row < shape.y.out; ++row)
        for (int64_t column = 0; column < shape.x.out; ++column)
            map.offsets.push_back((top + row) * row_stride + (left + column) * shape.images);
    return map;
}

// Numbers of an image that are fetched ahead: there are more images than streams that a processor follows by itself.
constexpr int64_t kAhead = 128;

// Pixels [first, end) of `channels` channels of a panel's images. They follow each other in memory: if there are
// several channels, all of their pixels are taken.
template <class T>
struct Pixels {
    const PixelMap& map;
    int64_t first, end, channels;
    int64_t images, samples;  // of the panel, and those that exist
    int64_t stride;           // numbers from an image to the next
    int64_t origin = 0;       // what of the panel's offsets lies before it

    int64_t count() const { return (end - first) * channels; }

    // Offsets of `many` pixels from pixel `at` on.
    template <int many>
    WB_INLINE void find(int64_t at, int64_t* offsets) const {
        const int64_t pixels = end - first;
        int64_t channel = at / pixels, pixel = first + at % pixels;
        for (int i = 0; i < many; ++i) {
            const int64_t offset = map.offsets[static_cast<size_t>(pixel)];
            offsets[i] = offset < 0 ? -1 : offset - origin + channel * map.channel;
            if (++pixel == end) pixel = first, ++channel;
        }
    }

    // Calls square(pixel, offsets) for squares that cover all pixels, the last two perhaps overlapping; false if there
    // are too few.
    template <int lanes, class Square>
    WB_INLINE bool each_square(Square&& square) const {
        const int64_t all = count();
        if (all < lanes) return false;
        int64_t offsets[lanes];
        for (int64_t at = 0; at < all; at += lanes) {
            at = std::min(at, all - lanes);
            find<lanes>(at, offsets);
            square(at, offsets);
        }
        return true;
    }

    template <int Bytes>
    WB_INLINE bool pack(const T* from, T* to) const {
        constexpr int lanes = Bytes / sizeof(T);
        return each_square<lanes>([&](int64_t at, const int64_t* offsets) {
            for (int64_t image = 0; image < images; image += lanes) {
                Vec<T, Bytes> v[lanes];
                for (int i = 0; i < lanes; ++i) {
                    const T* source = from + (image + i) * stride + at;
                    v[i] = image + i < samples ? load<T, Bytes>(source) : Vec<T, Bytes>{};
                    __builtin_prefetch(source + kAhead);
                }
                transpose_square<T, Bytes>(v);
                for (int i = 0; i < lanes; ++i)
                    if (offsets[i] >= 0) store<T, Bytes>(to + offsets[i] + image, v[i]);
            }
        });
    }
    template <int Bytes>
    WB_INLINE bool unpack(const T* from, T* to) const {
        constexpr int lanes = Bytes / sizeof(T);
        return each_square<lanes>([&](int64_t at, const int64_t* offsets) {
            for (int64_t image = 0; image < samples; image += lanes) {
                Vec<T, Bytes> v[lanes];
                for (int i = 0; i < lanes; ++i)
                    v[i] = offsets[i] >= 0 ? load<T, Bytes>(from + offsets[i] + image) : Vec<T, Bytes>{};
                transpose_square<T, Bytes>(v);
                for (int i = 0; i < lanes; ++i)
                    if (image + i < samples) store<T, Bytes>(to + (image + i) * stride + at, v[i]);
            }
        });
    }

    // Calls body(pixel of the image, offset or -1, pixels) for runs of pixels that are also neighbours in the panel.
    template <class Body>
    WB_INLINE void each_run(Body&& body) const {
        for (int64_t channel = 0; channel < channels; ++channel) {
            for (int64_t pixel = first; pixel < end; pixel += map.run) {
                const int64_t at = channel * (end - first) + pixel - first;
                const int64_t offset = map.offsets[static_cast<size_t>(pixel)];
                const int64_t seen = offset < 0 ? 0 : map.seen;
                if (seen > 0) body(at, offset - origin + channel * map.channel, seen);
                if (seen < map.run) body(at + seen, int64_t{-1}, map.run - seen);
            }
        }
    }

    // Calls wide(bytes) with the vectors that suit the panel's images; false if there are none, or wide says so.
    template <class Wide>
    WB_INLINE bool with_vector(Wide&& wide) const {
        const int64_t bytes = images * static_cast<int64_t>(sizeof(T));
        if (bytes % kVectorBytes == 0) return wide(std::integral_constant<int, kVectorBytes>{});
        if constexpr (kVectorBytes > 32) {
            if (bytes % 32 == 0) return wide(std::integral_constant<int, 32>{});
        }
        return bytes % 16 == 0 && wide(std::integral_constant<int, 16>{});
    }
};

// What is not a pixel is left as it is; images that do not exist become zero.
template <class T>
static void pack_pixels(const Pixels<T>& pixels, const T* from, T* to) {
    const auto squares = [&](auto bytes) { return pixels.template pack<decltype(bytes)::value>(from, to); };
    if (pixels.with_vector(squares)) return;
    pixels.each_run([&](int64_t at, int64_t offset, int64_t count) {
        if (offset < 0) return;
        for (int64_t b = 0; b < pixels.images; ++b) {
            const T* image = from + b * pixels.stride + at;
            if (pixels.images == 1) std::memcpy(to + offset, image, static_cast<size_t>(count) * sizeof(T));
            else
                for (int64_t i = 0; i < count; ++i)
                    to[offset + i * pixels.images + b] = b < pixels.samples ? image[i] : T(0);
        }
    });
}

// Pixels that nothing sees become zero.
template <class T>
static void unpack_pixels(const Pixels<T>& pixels, const T* from, T* to) {
    const auto squares = [&](auto bytes) { return pixels.template unpack<decltype(bytes)::value>(from, to); };
    if (pixels.with_vector(squares)) return;
    pixels.each_run([&](int64_t at, int64_t offset, int64_t count) {
        for (int64_t b = 0; b < pixels.samples; ++b) {
            T* image = to + b * pixels.stride + at;
            if (offset < 0) std::fill(image, image + count, T(0));
            else if (pixels.images == 1) std::memcpy(image, from + offset, static_cast<size_t>(count) * sizeof(T));
            else
                for (int64_t i = 0; i < count; ++i) image[i] = from[offset + i * pixels.images + b];
        }
    });
}

// Channels [first, end) of the images at `from` into their panel, all of it: the rest of a channel becomes zero. A few
// channels at a time, so that they are written while they are in the first cache.
template <class T>
static void pack_channels(const PixelMap& map, const T* from, int64_t stride, int64_t images, int64_t samples,
                          int64_t first, int64_t end, T* to) {
    constexpr int64_t cached = (16 << 10) / sizeof(T);
    const int64_t step = std::max<int64_t>(1, cached / std::max<int64_t>(1, map.channel));
    for (int64_t channel = first; channel < end; channel += step) {
        const int64_t many = std::min(step, end - channel);
        T* target = to + channel * map.channel;
        std::memset(target, 0, static_cast<size_t>(many * map.channel) * sizeof(T));
        const Pixels<T> pixels{map, 0, map.pixels(), many, images, samples, stride};
        pack_pixels(pixels, from + channel * map.pixels(), target);
    }
}

}  // namespace wb::WB_ISA
