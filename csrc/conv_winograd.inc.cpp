// Convolutions with stride 1 and a kernel of 3×3 or 5×5 by Winograd's algorithm, whatever share of the weights is active.
//
// A tile of the input, 8×8 pixels, and the weights of a pair of channels become 64 numbers each ("points"); their products,
// summed over channels, become a tile of the output, 9 − R pixels a side for a kernel of R×R. So there are 64
// multiplications for 16 outputs where a 5×5 kernel has 400, and for 36 outputs where a 3×3 kernel has 324. Each point has
// a matrix product of its own, tiles by channels by channels. Channels are side by side in the lanes of a vector.
//
// In float32 the answers differ from those of a direct sum by
// about 1e-5 of the largest, those of the weights' gradient by up to 3e-5 (measured with 64 channels).
//
// Memory: the weights as points, 64 numbers for each pair of channels, and about a hundred tiles at a time.
#pragma once

#include "conv_shape.inc.cpp"
#include "dense.inc.cpp"
#include "winograd_points.inc.cpp"

namespace wb::WB_ISA {

// What is where. Points of `tiles` tiles, and of the weights, are kept as one matrix a point, [tile or channel][channels].
template <class T>
struct Winograd {
    static constexpr int64_t lanes = kVectorBytes / static_cast<int64_t>(sizeof(T));
    static constexpr int64_t points = kPoints * kPoints;

    ConvShape shape;
    int64_t side;                  // of a tile of the output
    int64_t down, across, tiles;   // tiles of an image
    int64_t in_lanes, out_lanes;   // channels, rounded up to whole vectors
    int64_t images;                // at a time
    int64_t rows, columns;         // of an image with its padding, as far as tiles see it

    Winograd(const wb_conv& conv)
        : shape(conv, sizeof(T)), side(kPoints + 1 - shape.x.kernel), down((shape.y.out + side - 1) / side),
          across((shape.x.out + side - 1) / side), tiles(down * across), in_lanes(round_up(shape.in_channels, lanes)),
          out_lanes(round_up(shape.out_channels, lanes)),
          images(std::clamp<int64_t>(96 / std::max<int64_t>(1, tiles), 1, std::max<int64_t>(1, shape.batch))),
          rows(down * side + shape.x.kernel - 1), columns(across * side + shape.x.kernel - 1) {}

    int64_t blocks() const { return (shape.batch + images - 1) / images; }
    int64_t samples(int64_t block) const { return std::min(images, shape.batch - block * images); }
    // From a point's matrix to the next: not a multiple of 128 bytes, so that points fall into different lines of the cache.
    int64_t tile_points(int64_t channels) const { return images * tiles * channels + lanes; }
    int64_t weight_points() const { return shape.in_channels * out_lanes + lanes; }
    int64_t turned_points() const { return shape.out_channels * in_lanes + lanes; }
};

// `channels` channels of an image, [height][width] each, into [rows][columns][lanes], from (top, left) on; 0 elsewhere.
template <class T>
static void pack_image(const T* from, int64_t channels, int64_t height, int64_t width, int64_t top, int64_t left,
                       int64_t rows, int64_t columns, T* to) {
    constexpr int64_t lanes = Winograd<T>::lanes;
    std::fill(to, to + rows * columns * lanes, T(0));
    const int64_t seen = std::min(width, columns - left);
    for (int64_t y = 0; y < height && y + top < rows; ++y)
        pack<T, kVectorBytes>(from + y * width, height * width, channels, seen, to + ((y + top) * columns + left) * lanes);
}

// Calls body(tile, its top row, its left column) for each tile of an image, in pixels of the output.
template <class T, class Body>
WB_INLINE void each_tile(const Winograd<T>& plan, Body&& body) {
    for (int64_t tile = 0; tile < plan.tiles; ++tile) body(tile, tile / plan.across * plan.side, tile % plan.across * plan.side);
}

template <class T>
static void image_to_points(const Winograd<T>& plan, const T* image, int64_t sample, T* v) {
    constexpr int64_t lanes = Winograd<T>::lanes;
    const ConvShape& shape = plan.shape;
    T* padded = static_cast<T*>(scratch(Scratch::columns, static_cast<size_t>(plan.rows * plan.columns * lanes) * sizeof(T)));
    const int64_t stride = plan.tile_points(plan.in_lanes), pixels = shape.y.in * shape.x.in;
    for (int64_t channel = 0; channel < shape.in_channels; channel += lanes) {
        pack_image(image + channel * pixels, std::min(lanes, shape.in_channels - channel), shape.y.in, shape.x.in,
                   shape.y.before, shape.x.before, plan.rows, plan.columns, padded);
        each_tile(plan, [&](int64_t tile, int64_t top, int64_t left) {
            const T* from = padded + (top * plan.columns + left) * lanes;
            T* to = v + (sample * plan.tiles + tile) * plan.in_lanes + channel;
            both_axes<T, 8, 8>([&](int i) { return load<T>(from + (i / 8 * plan.columns + i % 8) * lanes); }, input_points<T>,
                               [&](int i, Vec<T> found) { store<T>(to + i * stride, found); });
        });
    }
}

template <class T>
static void points_to_input_gradient(const Winograd<T>& plan, const T* v, int64_t sample, T* image) {
    constexpr int64_t lanes = Winograd<T>::lanes;
    const ConvShape& shape = plan.shape;
    const int64_t size = plan.rows * plan.columns * lanes, stride = plan.tile_points(plan.in_lanes);
    T* padded = static_cast<T*>(scratch(Scratch::columns, static_cast<size_t>(size) * sizeof(T)));
    for (int64_t channel = 0; channel < shape.in_channels; channel += lanes) {
        std::fill(padded, padded + size, T(0));
        each_tile(plan, [&](int64_t tile, int64_t top, int64_t left) {
            const T* from = v + (sample * plan.tiles + tile) * plan.in_lanes + channel;
            T* to = padded + (top * plan.columns + left) * lanes;
            both_axes<T, 8, 8>([&](int i) { return load<T>(from + i * stride); }, input_gradient<T>, [&](int i, Vec<T> x) {
                T* at = to + (i / 8 * plan.columns + i % 8) * lanes;
                store<T>(at, load<T>(at) + x);  // tiles overlap
            });
        });
        for (int64_t y = 0; y < shape.y.in; ++y) {
            T* to = image + (channel * shape.y.in + y) * shape.x.in;
            const int64_t row = y + shape.y.before, seen = std::min(shape.x.in, plan.columns - shape.x.before);
            const int64_t channels = std::min(lanes, shape.in_channels - channel), pixels = shape.y.in * shape.x.in;
            if (row < plan.rows && seen > 0)
                unpack<T, kVectorBytes>(padded + (row * plan.columns + shape.x.before) * lanes, channels, seen, to, pixels);
            for (int64_t c = 0; c < channels; ++c)  // what no output sees
                std::fill(to + c * pixels + (row < plan.rows ? std::max<int64_t>(0, seen) : 0), to + c * pixels + shape.x.in, T(0));
        }
    }
}

template <class T, int M>
static void points_to_image(const Winograd<T>& plan, const T* v, int64_t sample, const T* bias, T* image) {
    constexpr int64_t lanes = Winograd<T>::lanes;
    const ConvShape& shape = plan.shape;
    const int64_t width = plan.across * M, stride = plan.tile_points(plan.out_lanes);
    T* lines = static_cast<T*>(scratch(Scratch::columns, static_cast<size_t>(plan.down * M * width * lanes) * sizeof(T)));
    for (int64_t channel = 0; channel < shape.out_channels; channel += lanes) {
        const int64_t channels = std::min(lanes, shape.out_channels - channel);
        T first[lanes] = {};
        if (bias != nullptr) std::copy(bias + channel, bias + channel + channels, first);
        const Vec<T> start = load<T>(first);
        each_tile(plan, [&](int64_t tile, int64_t top, int64_t left) {
            const T* from = v + (sample * plan.tiles + tile) * plan.out_lanes + channel;
            T* to = lines + (top * width + left) * lanes;
            both_axes<T, 8, M>([&](int i) { return load<T>(from + i * stride); }, output_sums<T, M>, [&](int i, Vec<T> y) {
                store<T>(to + (i / M * width + i % M) * lanes, y + start);
            });
        });
        for (int64_t y = 0; y < shape.y.out; ++y)
            unpack<T, kVectorBytes>(lines + y * width * lanes, channels, shape.x.out,
                                    image + (channel * shape.y.out + y) * shape.x.out, shape.y.out * shape.x.out);
    }
}

template <class T, int M>
static void output_gradient_to_points(const Winograd<T>& plan, const T* image, int64_t sample, T* v) {
    constexpr int64_t lanes = Winograd<T>::lanes;
    const ConvShape& shape = plan.shape;
    const int64_t height = plan.down * M, width = plan.across * M, stride = plan.tile_points(plan.out_lanes);
    T* lines = static_cast<T*>(scratch(Scratch::columns, static_cast<size_t>(height * width * lanes) * sizeof(T)));
    for (int64_t channel = 0; channel < shape.out_channels; channel += lanes) {
        pack_image(image + channel * shape.y.out * shape.x.out, std::min(lanes, shape.out_channels - channel), shape.y.out,
                   shape.x.out, 0, 0, height, width, lines);
        each_tile(plan, [&](int64_t tile, int64_t top, int64_t left) {
            const T* from = lines + (top * width + left) * lanes;
            T* to = v + (sample * plan.tiles + tile) * plan.out_lanes + channel;
            both_axes<T, M, 8>([&](int i) { return load<T>(from + (i / M * width + i % M) * lanes); }, output_points<T, M>,
                               [&](int i, Vec<T> found) { store<T>(to + i * stride, found); });
        });
    }
}

// The weights of an input channel, written out as R × R rows of output channels.
template <class T, int R>
static T* weight_block(const Winograd<T>& plan) {
    return static_cast<T*>(scratch(Scratch::lines, static_cast<size_t>(R * R * plan.out_lanes + 32) * sizeof(T)));
}

template <class T, int R>
static void weights_to_points(const Winograd<T>& plan, const Layer<T>& layer, int threads, T* u) {
    constexpr int64_t lanes = Winograd<T>::lanes;
    const int64_t stride = plan.weight_points();
    parallel_for(threads, plan.shape.in_channels, [&](int64_t channel) {
        T* block = weight_block<T, R>(plan);
        std::fill(block, block + R * R * plan.out_lanes, T(0));
        expand_block(layer, channel * R * R, R * R, block, plan.out_lanes, plan.shape.out_channels);
        for (int64_t out = 0; out < plan.out_lanes; out += lanes) {
            T* to = u + channel * plan.out_lanes + out;
            both_axes<T, R, 8>([&](int i) { return load<T>(block + i * plan.out_lanes + out); }, weight_points<T, R>,
                               [&](int i, Vec<T> found) { store<T>(to + i * stride, found); });
        }
    });
}

template <class T, int R>
static void points_to_weight_gradient(const Winograd<T>& plan, const Layer<T>& layer, int threads, const T* u, T* dtheta) {
    constexpr int64_t lanes = Winograd<T>::lanes;
    const int64_t stride = plan.weight_points();
    parallel_for(threads, plan.shape.in_channels, [&](int64_t channel) {
        T* block = weight_block<T, R>(plan);
        for (int64_t out = 0; out < plan.out_lanes; out += lanes) {
            const T* from = u + channel * plan.out_lanes + out;
            both_axes<T, 8, R>([&](int i) { return load<T>(from + i * stride); }, weight_sums<T, R>,
                               [&](int i, Vec<T> w) { store<T>(block + i * plan.out_lanes + out, w); });
        }
        gather_block<T, false>(layer, channel * R * R, R * R, block, plan.out_lanes, dtheta);
    });
}

// Room for some arrays one after another; what has no size has no room.
template <class T, size_t N>
static void share_out(T* (&arrays)[N], const int64_t (&sizes)[N]) {
    int64_t all = 0;
    for (const int64_t size : sizes) all += round_up(size, 16);
    T* space = static_cast<T*>(scratch(Scratch::panel, static_cast<size_t>(all) * sizeof(T)));
    for (size_t i = 0; i < N; space += round_up(sizes[i++], 16)) arrays[i] = space;
}

template <class T, int R>
static void winograd_forward(const Winograd<T>& plan, const Layer<T>& layer, const T* x, T* y, const T* bias, int threads) {
    const ConvShape& shape = plan.shape;
    const int64_t in_stride = plan.tile_points(plan.in_lanes), out_stride = plan.tile_points(plan.out_lanes);
    T* arrays[3];
    share_out(arrays, {plan.points * plan.weight_points(), plan.points * in_stride, plan.points * out_stride});
    T *u = arrays[0], *v = arrays[1], *m = arrays[2];
    weights_to_points<T, R>(plan, layer, threads, u);
    for (int64_t block = 0; block < plan.blocks(); ++block) {
        const int64_t first = block * plan.images, samples = plan.samples(block);
        parallel_for(threads, samples, [&](int64_t sample) {
            image_to_points(plan, x + (first + sample) * shape.in_image(), sample, v);
        });
        parallel_for(threads, plan.points, [&](int64_t point) {
            const Product<T> product{shape.in_channels, v + point * in_stride, 1, plan.in_lanes, u + point * plan.weight_points(),
                                     plan.out_lanes, m + point * out_stride, plan.out_lanes, nullptr, 0};
            multiply(product, samples * plan.tiles, plan.out_lanes);
        });
        parallel_for(threads, samples, [&](int64_t sample) {
            points_to_image<T, 9 - R>(plan, m, sample, bias, y + (first + sample) * shape.out_image());
        });
    }
}

template <class T, int R>
static void winograd_backward(const Winograd<T>& plan, const Layer<T>& layer, const T* x, const T* dy, T* dx, T* dtheta,
                              int threads) {
    const ConvShape& shape = plan.shape;
    const int64_t in_stride = plan.tile_points(plan.in_lanes), out_stride = plan.tile_points(plan.out_lanes);
    const int64_t weights = plan.weight_points(), turned_stride = plan.turned_points();
    T* arrays[5];
    share_out(arrays, {plan.points * weights, dx ? plan.points * turned_stride : 0, plan.points * in_stride,
                       plan.points * out_stride, dx ? plan.points * in_stride : 0});
    T *u = arrays[0], *turned = arrays[1], *v = arrays[2], *m = arrays[3], *dv = arrays[4];
    if (dx != nullptr) {
        weights_to_points<T, R>(plan, layer, threads, u);
        parallel_for(threads, plan.points, [&](int64_t point) {
            T* to = turned + point * turned_stride;
            const T* from = u + point * weights;
            if (plan.in_lanes > shape.in_channels) std::fill(to, to + shape.out_channels * plan.in_lanes, T(0));
            for (int64_t out = 0; out < shape.out_channels; ++out)
                for (int64_t in = 0; in < shape.in_channels; ++in) to[out * plan.in_lanes + in] = from[in * plan.out_lanes + out];
        });
    }
    T* du = u;  // the weights themselves are needed no more
    for (int64_t block = 0; block < plan.blocks(); ++block) {
        const int64_t first = block * plan.images, samples = plan.samples(block), tiles = samples * plan.tiles;
        parallel_for(threads, samples, [&](int64_t sample) {
            output_gradient_to_points<T, 9 - R>(plan, dy + (first + sample) * shape.out_image(), sample, m);
            if (dtheta != nullptr) image_to_points(plan, x + (first + sample) * shape.in_image(), sample, v);
        });
        parallel_for(threads, plan.points, [&](int64_t point) {
            const T* gradient = m + point * out_stride;
            if (dx != nullptr)
                multiply(Product<T>{shape.out_channels, gradient, 1, plan.out_lanes, turned + point * turned_stride, plan.in_lanes,
                                    dv + point * in_stride, plan.in_lanes, nullptr, 0}, tiles, plan.in_lanes);
            T* sums = du + point * weights;
            if (dtheta != nullptr)
                multiply(Product<T>{tiles, v + point * in_stride, plan.in_lanes, 1, gradient, plan.out_lanes, sums, plan.out_lanes,
                                    block == 0 ? nullptr : sums, plan.out_lanes}, shape.in_channels, plan.out_lanes);
        });
        if (dx != nullptr)
            parallel_for(threads, samples, [&](int64_t sample) {
                points_to_input_gradient(plan, dv, sample, dx + (first + sample) * shape.in_image());
            });
    }
    if (dtheta != nullptr) points_to_weight_gradient<T, R>(plan, layer, threads, du, dtheta);
}

// Whether a convolution is of the kind that this file computes.
static bool suits_winograd(const wb_conv& conv) {
    const int64_t kernel = conv.kernel[0];
    if ((kernel != 3 && kernel != 5) || conv.kernel[1] != kernel || conv.groups != 1) return false;
    for (int axis = 0; axis < 2; ++axis)
        if (conv.stride[axis] != 1 || conv.dilation[axis] != 1 || conv.before[axis] < 0 || conv.out_size[axis] <= 0) return false;
    return conv.batch > 0 && conv.in_channels > 0 && conv.out_channels > 0;
}

template <class T>
static int entry_winograd_forward(const wb_conv* conv, const T* x, T* y, int64_t connections, const int64_t* colptr,
                                  const int32_t* packed_rows, const T* theta, int bound, const T* bias, int threads) {
    if (!suits_winograd(*conv)) return WB_BAD_INDEX;
    const Winograd<T> plan(*conv);
    const Layer<T> layer{plan.shape.columns(), plan.shape.out_channels, colptr, packed_rows, theta};
    if (const int fault = layer_fault(layer, connections, bound)) return fault;
    const auto run = plan.side == 4 ? winograd_forward<T, 5> : winograd_forward<T, 3>;
    run(plan, layer, x, y, bias, threads);
    return WB_FINE;
}

template <class T>
static int entry_winograd_backward(const wb_conv* conv, const T* x, const T* dy, T* dx, T* dtheta, int64_t connections,
                                   const int64_t* colptr, const int32_t* packed_rows, const T* theta, int threads) {
    if (!suits_winograd(*conv)) return WB_BAD_INDEX;
    const Winograd<T> plan(*conv);
    const Layer<T> layer{plan.shape.columns(), plan.shape.out_channels, colptr, packed_rows, theta};
    if (const int fault = layer_fault(layer, connections, 0)) return fault;
    const auto run = plan.side == 4 ? winograd_backward<T, 5> : winograd_backward<T, 3>;
    run(plan, layer, x, dy, dx, dtheta, threads);
    return WB_FINE;
}

}  // namespace wb::WB_ISA
