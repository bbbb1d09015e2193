// Between row-major activations [sample][feature] and panels [feature][W samples].
//
// Row strides are often powers of two, and then the rows of a batch compete for the same few cache lines. So a
// direction touches few rows at a time and moves along them: eight when reading, four when writing.
#pragma once

#include "simd.h"

namespace wb::WB_ISA {

// Features handled for one group of samples before the next group: their part of the panel stays in the first cache.
// Features of a wide panel compete for fewer of its lines, so they are fewer.
constexpr int64_t kSegment = 64;
template <int PanelBytes>
constexpr int64_t kPackSegment = PanelBytes > 256 ? kSegment / 2 : kSegment;
template <int PanelBytes>
constexpr int64_t kUnpackSegment = PanelBytes > 256 ? kSegment / 2 : PanelBytes > 128 ? kSegment : 2 * kSegment;

// Panel rows are allocated in multiples of this.
constexpr int64_t kPanelRound = 16;

// Bytes of the vectors that suit a panel of PanelBytes per feature.
template <int PanelBytes>
constexpr int kStripBytes = PanelBytes < 32 ? PanelBytes : (kVectorBytes < 32 ? kVectorBytes : 32);

// Transposes the square of numbers in every 16 bytes of some vectors, 4 by 4 floats or 2 by 2 doubles; in may be out.
template <class T, int Bytes>
WB_INLINE void transpose_squares(const Vec<T, Bytes>* in, Vec<T, Bytes>* out) {
    using V = Vec<T, Bytes>;
    const V a = unpack_low<T, Bytes>(in[0], in[1]), c = unpack_high<T, Bytes>(in[0], in[1]);
    if constexpr (sizeof(T) == 4) {
        const V b = unpack_low<T, Bytes>(in[2], in[3]), d = unpack_high<T, Bytes>(in[2], in[3]);
        out[0] = pairs_low<T, Bytes>(a, b);
        out[1] = pairs_high<T, Bytes>(a, b);
        out[2] = pairs_low<T, Bytes>(c, d);
        out[3] = pairs_high<T, Bytes>(c, d);
    } else {
        out[0] = a;
        out[1] = c;
    }
}

// Row i of eight becomes lane i.
WB_INLINE void transpose8(Floats8 rows[8]) {
    Floats8 squares[8];
    for (int i = 0; i < 8; i += 4) transpose_squares<float, 32>(rows + i, squares + i);
    for (int i = 0; i < 4; ++i) {
        rows[i] = halves_low<float>(squares[i], squares[i + 4]);
        rows[i + 4] = halves_high<float>(squares[i], squares[i + 4]);
    }
}

// The same for four rows; lanes 4 to 7 repeat other values of the block.
WB_INLINE void transpose4(const Floats8 rows[4], Floats8 columns[8]) {
    transpose_squares<float, 32>(rows, columns);
    for (int i = 0; i < 4; ++i) columns[i + 4] = halves_high<float>(columns[i], columns[i]);
}

// to[j][i] = from[i][j] for i in one vector's lanes and j in 16 bytes of them: shuffles stay within 16 bytes.
// row(i) is the address of from[i].
template <class T, int Bytes, class Row>
WB_INLINE void transpose_strip(Row&& row, T* to, int64_t to_stride) {
    constexpr int step = 16 / sizeof(T);
    using V = Vec<T, Bytes>;
    V in[step], out[step];
    for (int i = 0; i < step; ++i) {
        if constexpr (Bytes == 16) in[i] = load<T, 16>(row(i));
        else in[i] = join<T>(load<T, 16>(row(i)), load<T, 16>(row(i + step)));
    }
    transpose_squares<T, Bytes>(in, out);
    for (int j = 0; j < step; ++j) store<T, Bytes>(to + j * to_stride, out[j]);
}

// panel[f][b] = from[b][f]; the samples between `samples` and W become zero.
template <class T, int PanelBytes>
static void pack(const T* from, int64_t stride, int64_t samples, int64_t features, T* panel) {
    constexpr int W = PanelBytes / sizeof(T);
    constexpr int Bytes = kStripBytes<PanelBytes>;
    constexpr int side = Bytes / sizeof(T);
    constexpr int step = 16 / sizeof(T);
    constexpr int64_t segment_features = kPackSegment<PanelBytes>;
    static const T zeros[kSegment] = {};
    for (int64_t segment = 0; segment < features; segment += segment_features) {
        const int64_t end = std::min(segment_features, features - segment);
        for (int64_t b = 0; b < W; b += side) {
            const T* source = from + b * stride + segment;
            T* target = panel + segment * W + b;
            int64_t f = 0;
            if (b + side <= samples) {
                for (; f + step <= end; f += step)
                    transpose_strip<T, Bytes>([&](int i) { return source + i * stride + f; }, target + f * W, W);
            } else {
                const T* rows[side];
                for (int i = 0; i < side; ++i) rows[i] = b + i < samples ? source + i * stride : zeros;
                for (; f + step <= end; f += step)
                    transpose_strip<T, Bytes>([&](int i) { return rows[i] + f; }, target + f * W, W);
            }
            for (; f < end; ++f) {
                for (int i = 0; i < side; ++i) target[f * W + i] = b + i < samples ? source[i * stride + f] : T(0);
            }
        }
    }
}

// to[b][f] = panel[f][b], or += with Add.
template <class T, int PanelBytes, bool Add = false>
static void unpack(const T* panel, int64_t samples, int64_t features, T* to, int64_t stride) {
    constexpr int W = PanelBytes / sizeof(T);
    constexpr int Bytes = kStripBytes<PanelBytes>;
    constexpr int side = Bytes / sizeof(T);
    constexpr int step = 16 / sizeof(T);
    constexpr int64_t segment_features = kUnpackSegment<PanelBytes>;
    for (int64_t segment = 0; segment < features; segment += segment_features) {
        const int64_t end = std::min(segment_features, features - segment);
        for (int64_t b = 0; b < samples; b += step) {
            const T* source = panel + segment * W + b;
            T* target = to + b * stride + segment;
            const int64_t rows = std::min<int64_t>(step, samples - b);
            int64_t f = 0;
            for (; f + side <= end; f += side) {
                const auto row = [&](int i) { return source + (f + i) * W; };
                if (!Add && rows == step) {
                    transpose_strip<T, Bytes>(row, target + f, stride);
                    continue;
                }
                alignas(64) T staged[step * side];
                transpose_strip<T, Bytes>(row, staged, side);
                for (int64_t i = 0; i < rows; ++i) {
                    auto value = load<T, Bytes>(staged + i * side);
                    if constexpr (Add) value += load<T, Bytes>(target + i * stride + f);
                    store<T, Bytes>(target + i * stride + f, value);
                }
            }
            for (; f < end; ++f) {
                for (int64_t i = 0; i < rows; ++i) {
                    if constexpr (Add) target[i * stride + f] += source[f * W + i];
                    else target[i * stride + f] = source[f * W + i];
                }
            }
        }
    }
}

}  // namespace wb::WB_ISA
