// The largest of each window and its place in it, for images with their channels innermost: a vector holds channels of
// one pixel. Windows end where the image does.
#pragma once

#include "transpose.inc.cpp"

namespace wb::WB_ISA {

// to[j][i] = from[i][j]
template <class T>
static void turn(const T* from, int64_t from_stride, int64_t rows, int64_t columns, T* to, int64_t to_stride) {
    int64_t whole_rows = 0, whole_columns = 0;
    if constexpr (sizeof(T) == 4) {
        whole_rows = rows / 8 * 8;
        whole_columns = columns / 8 * 8;
        for (int64_t i = 0; i < whole_rows; i += 8)
            for (int64_t j = 0; j < whole_columns; j += 8) {
                Floats8 block[8];
                for (int k = 0; k < 8; ++k) block[k] = load<float, 32>(from + (i + k) * from_stride + j);
                transpose8(block);
                for (int k = 0; k < 8; ++k) store<float, 32>(to + (j + k) * to_stride + i, block[k]);
            }
    }
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) to[j * to_stride + i] = from[i * from_stride + j];
}

// One row of outputs [pooled width][padded channels] and their places [pooled width][channels], from the `height` rows of a
// window. Place ky * window + kx is relative to the window's first pixel. With Positive, the largest is one of 0 and up.
template <class T, bool Positive>
static void pool_row(const wb_pool_norm& shape, const T* const* rows, int64_t height, int64_t padded, T* out, uint8_t* places) {
    constexpr int64_t lanes = kVectorBytes / sizeof(T);
    using V = Vec<T>;
    using B = BitsVec<T>;
    typedef uint8_t Bytes __attribute__((vector_size(lanes)));
    for (int64_t column = 0; column < shape.pooled[1]; ++column) {
        const int64_t first = column * shape.step, width = std::min(shape.window, shape.size[1] - first);
        for (int64_t c = 0; c < shape.channels; c += lanes) {
            V best = load<T>(rows[0] + first * padded + c);
            B place{};
            for (int64_t ky = 0; ky < height; ++ky) {
                const T* row = rows[ky] + first * padded + c;
                for (int64_t kx = 0; kx < width; ++kx) {
                    const V value = load<T>(row + kx * padded);
                    const B better = (value > best) | (value != value);  // a NaN is the largest
                    best = better ? value : best;
                    place = better ? static_cast<Bits<T>>(ky * shape.window + kx) - B{} : place;
                }
            }
            if constexpr (Positive) best = best < T(0) ? V{} : best;
            store<T>(out + column * padded + c, best);
            const Bytes small = __builtin_convertvector(place, Bytes);
            uint8_t* to = places + column * shape.channels + c;
            if (c + lanes <= shape.channels) std::memcpy(to, &small, lanes);
            else std::memcpy(to, &small, static_cast<size_t>(shape.channels - c));
        }
    }
}

}  // namespace wb::WB_ISA
