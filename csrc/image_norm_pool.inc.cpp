// max(0, x), local response normalisation and the largest of each window, in one pass over each image; and the gradient,
// which needs x and the place of each largest.
#pragma once

#include "image_pool.inc.cpp"
#include "image_response.inc.cpp"

namespace wb::WB_ISA {

// places: where in its window each output is from, [batch][pooled][channels].
template <class T>
static int entry_norm_pool_forward(const wb_pool_norm* shape, const T* x, uint8_t* places, T* y, int threads) {
    constexpr int64_t lanes = kVectorBytes / sizeof(T);
    const Response<T> response(*shape);
    const int64_t pixels = shape->size[0] * shape->size[1], out_pixels = shape->pooled[0] * shape->pooled[1];
    const int64_t channels = shape->channels, padded = round_up(channels, lanes);
    const int64_t most = round_up(channels * pixels, lanes) + (pixels + out_pixels) * padded + response.scratch_size();
    parallel_for(threads, shape->batch, [&](int64_t b) {
        T* normal = static_cast<T*>(scratch(Scratch::panel, static_cast<size_t>(most) * sizeof(T)));
        T* turned = normal + round_up(channels * pixels, lanes);
        T* largest = turned + pixels * padded;
        T* memory = largest + out_pixels * padded;
        response.forward(x + b * channels * pixels, normal, pixels, memory);
        if (padded > channels)
            for (int64_t i = 0; i < pixels; ++i)
                for (int64_t c = channels; c < padded; ++c) turned[i * padded + c] = T(0);
        turn(normal, pixels, channels, pixels, turned, padded);
        const T* rows[16];
        for (int64_t row = 0; row < shape->pooled[0]; ++row) {
            const int64_t begin = row * shape->step, end = std::min(begin + shape->window, shape->size[0]);
            for (int64_t i = begin; i < end; ++i) rows[i - begin] = turned + i * shape->size[1] * padded;
            pool_row<T, false>(*shape, rows, end - begin, padded, largest + row * shape->pooled[1] * padded,
                               places + (b * out_pixels + row * shape->pooled[1]) * channels);
        }
        turn(largest, padded, out_pixels, channels, y + b * channels * out_pixels, out_pixels);
    });
    return WB_FINE;
}

template <class T>
static int entry_norm_pool_backward(const wb_pool_norm* shape, const T* x, const uint8_t* places, const T* dy, T* dx,
                                    int threads) {
    const Response<T> response(*shape);
    const int64_t pixels = shape->size[0] * shape->size[1], out_pixels = shape->pooled[0] * shape->pooled[1];
    const int64_t channels = shape->channels, width = shape->size[1];
    int32_t place_offset[256];
    for (int64_t k = 0; k < 256; ++k) place_offset[k] = static_cast<int32_t>(k / shape->window * width + k % shape->window);
    parallel_for(threads, shape->batch, [&](int64_t b) {
        T* memory = static_cast<T*>(scratch(Scratch::panel, static_cast<size_t>(response.scratch_size()) * sizeof(T)));
        T* planes = dx + b * channels * pixels;
        for (int64_t i = 0; i < channels * pixels; ++i) planes[i] = T(0);
        const uint8_t* places_here = places + b * out_pixels * channels;
        const T* slopes = dy + b * channels * out_pixels;
        for (int64_t c = 0; c < channels; ++c)
            for (int64_t row = 0, q = 0; row < shape->pooled[0]; ++row)
                for (int64_t column = 0; column < shape->pooled[1]; ++column, ++q) {
                    const int64_t first = c * pixels + (row * width + column) * shape->step;
                    planes[first + place_offset[places_here[q * channels + c]]] += slopes[c * out_pixels + q];
                }
        response.backward(x + b * channels * pixels, planes, planes, pixels, memory);
    });
    return WB_FINE;
}

}  // namespace wb::WB_ISA
