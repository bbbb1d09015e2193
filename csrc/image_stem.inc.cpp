// The first block of a network for images: a dense convolution of few channels (stride 1), the largest positive part of
// each window, and local response normalisation. One image after the other, so that the outputs of the convolution, four
// times as many as those of the block, never leave the cache.
//
// An image is laid out [row][column][channel] with its padding: what an output sees in a row is one stretch of memory.
// Only the largest of each window has a gradient, so the gradient to the weights is a sum over those places alone.
#pragma once

#include "image_pool.inc.cpp"
#include "image_response.inc.cpp"

namespace wb::WB_ISA {

// How the convolution is laid out in memory.
template <class T>
struct StemLayout {
    static constexpr int64_t kLanes = kVectorBytes / sizeof(T);
    static constexpr int kColumns = 6;                            // outputs at a time
    static constexpr int kVectors = kVectorBytes == 64 ? 4 : 2;   // times their channels, as vectors
    static constexpr int kSums = kVectorBytes == 64 ? 5 : 10;     // vectors of a weight's gradient at a time

    const wb_stem& stem;
    int64_t row_taps, taps;        // weights that one output channel has for a row of the image, and at all
    int64_t row, image;            // numbers in a row of the padded image, and in all of it
    int64_t channels;              // of the output, padded
    int64_t row_vectors, vectors;  // of a weight's gradient: for a row, at all

    explicit StemLayout(const wb_stem& given) : stem(given) {
        row_taps = stem.kernel[1] * stem.in_channels;
        taps = stem.kernel[0] * row_taps;
        row = (stem.after.size[1] + stem.kernel[1] - 1) * stem.in_channels;
        row_vectors = (row_taps + kLanes - 1) / kLanes;
        vectors = round_up(stem.kernel[0] * row_vectors, kSums);
        image = round_up((stem.after.size[0] + stem.kernel[0] - 1) * row + row_vectors * kLanes, kLanes);
        channels = round_up(stem.after.channels, kVectors * kLanes);
    }

    // Where weight [o][c][ky][kx] is among those of o, and which tap it is in the order of an image.
    int64_t weight(int64_t tap) const {
        const int64_t c = tap % stem.in_channels, kx = tap / stem.in_channels % stem.kernel[1], ky = tap / row_taps;
        return (c * stem.kernel[0] + ky) * stem.kernel[1] + kx;
    }

    void lay_out(const T* x, T* to) const {
        const int64_t height = stem.in_size[0], width = stem.in_size[1], channels_in = stem.in_channels;
        for (int64_t i = 0; i < image; ++i) to[i] = T(0);
        const int64_t rows = stem.after.size[0] + stem.kernel[0] - 1, columns = row / channels_in;
        for (int64_t c = 0; c < channels_in; ++c)
            for (int64_t y = 0; y < height && y + stem.before[0] < rows; ++y) {
                const T* from = x + (c * height + y) * width;
                T* line = to + (y + stem.before[0]) * row + stem.before[1] * channels_in + c;
                const int64_t end = std::min(width, columns - stem.before[1]);
                for (int64_t i = 0; i < end; ++i) line[i * channels_in] = from[i];
            }
    }
};

// `Columns` neighbouring outputs of a row, for kVectors vectors of channels; x is the first number that the first sees.
template <class T, int Columns>
WB_INLINE void stem_outputs(const StemLayout<T>& layout, const T* x, const T* weight, const T* bias, T* y) {
    constexpr int N = StemLayout<T>::kVectors;
    constexpr int64_t lanes = StemLayout<T>::kLanes;
    Vec<T> sums[Columns][N];
    for (int v = 0; v < N; ++v)
        for (int p = 0; p < Columns; ++p) sums[p][v] = load<T>(bias + v * lanes);
    const int64_t step = layout.stem.in_channels;
    for (int64_t ky = 0; ky < layout.stem.kernel[0]; ++ky, x += layout.row)
        for (int64_t tap = 0; tap < layout.row_taps; ++tap, weight += layout.channels) {
            Vec<T> w[N];
            for (int v = 0; v < N; ++v) {
                w[v] = load<T>(weight + v * lanes);
                keep(w[v]);
            }
            for (int p = 0; p < Columns; ++p) {
                const Vec<T> value = splat<T>(x[tap + p * step]);
                for (int v = 0; v < N; ++v) sums[p][v] += value * w[v];
            }
        }
    for (int p = 0; p < Columns; ++p)
        for (int v = 0; v < N; ++v) store<T>(y + p * layout.channels + v * lanes, sums[p][v]);
}

// A row of outputs [width][channels].
template <class T>
static void stem_row(const StemLayout<T>& layout, const T* x, const T* weight, const T* bias, T* y) {
    constexpr int P = StemLayout<T>::kColumns;
    const int64_t width = layout.stem.after.size[1], step = layout.stem.in_channels;
    for (int64_t c = 0; c < layout.channels; c += StemLayout<T>::kVectors * StemLayout<T>::kLanes) {
        int64_t i = 0;
        for (; i + P <= width; i += P)
            stem_outputs<T, P>(layout, x + i * step, weight + c, bias + c, y + i * layout.channels + c);
        for (; i < width; ++i)
            stem_outputs<T, 1>(layout, x + i * step, weight + c, bias + c, y + i * layout.channels + c);
    }
}

// pooled: what is normalised, [batch][channels][pooled]; places: where in its window each is from, [batch][pooled][channels].
template <class T>
static int entry_stem_forward(const wb_stem* stem, const T* x, const T* weight, const T* bias, T* pooled, uint8_t* places,
                              T* y, int threads) {
    const wb_pool_norm& after = stem->after;
    const StemLayout<T> layout(*stem);
    const Response<T> response(after);
    const int64_t padded = layout.channels, out_pixels = after.pooled[0] * after.pooled[1];
    T* turned = static_cast<T*>(scratch(Scratch::columns, static_cast<size_t>((layout.taps + 1) * padded) * sizeof(T)));
    T* first = turned + layout.taps * padded;
    for (int64_t o = 0; o < padded; ++o) {
        const bool real = o < after.channels;
        for (int64_t tap = 0; tap < layout.taps; ++tap)
            turned[tap * padded + o] = real ? weight[o * layout.taps + layout.weight(tap)] : T(0);
        first[o] = real ? bias[o] : T(0);
    }
    const int64_t line = after.size[1] * padded;
    const int64_t most = layout.image + after.window * line + out_pixels * padded + response.scratch_size();
    parallel_for(threads, after.batch, [&](int64_t b) {
        T* image = static_cast<T*>(scratch(Scratch::panel, static_cast<size_t>(most) * sizeof(T)));
        T* lines = image + layout.image;
        T* largest = lines + after.window * line;
        T* memory = largest + out_pixels * padded;
        layout.lay_out(x + b * stem->in_channels * stem->in_size[0] * stem->in_size[1], image);
        uint8_t* places_here = places + b * out_pixels * after.channels;
        int64_t next = 0;
        const T* rows[16];
        for (int64_t row = 0; row < after.pooled[0]; ++row) {
            const int64_t begin = row * after.step, end = std::min(begin + after.window, after.size[0]);
            for (next = std::max(next, begin); next < end; ++next)
                stem_row(layout, image + next * layout.row, turned, first, lines + next % after.window * line);
            for (int64_t i = begin; i < end; ++i) rows[i - begin] = lines + i % after.window * line;
            pool_row<T, true>(after, rows, end - begin, padded, largest + row * after.pooled[1] * padded,
                              places_here + row * after.pooled[1] * after.channels);
        }
        T* kept = pooled + b * after.channels * out_pixels;
        turn(largest, padded, out_pixels, after.channels, kept, out_pixels);
        response.forward(kept, y + b * after.channels * out_pixels, out_pixels, memory);
    });
    return WB_FINE;
}

// sums += value * (what the output at each place sees), over some outputs of one channel, for kSums vectors of taps.
template <class T>
WB_INLINE void add_seen(const T* image, const int32_t* offsets, const int32_t* at, const T* values, int64_t count, T* sums) {
    constexpr int N = StemLayout<T>::kSums;
    constexpr int64_t lanes = StemLayout<T>::kLanes;
    Vec<T> sum[N];
    const T* from[N];
    for (int i = 0; i < N; ++i) {
        sum[i] = load<T>(sums + i * lanes);
        from[i] = image + offsets[i];
    }
    for (int64_t q = 0; q < count; ++q) {
        const Vec<T> value = splat<T>(values[q]);
        const int64_t here = at[q];
        for (int i = 0; i < N; ++i) sum[i] += value * load<T>(from[i] + here);
    }
    for (int i = 0; i < N; ++i) store<T>(sums + i * lanes, sum[i]);
}

// Slopes of a channel that are not 0, and where in the image begins what they belong to; returns how many.
template <class T>
static int64_t alive_of(const T* slopes, const uint8_t* places, int64_t channels, int64_t count, const int32_t* windows,
                        const int32_t* offsets, int32_t* at, T* values) {
    int64_t alive = 0;
    for (int64_t q = 0; q < count; ++q, places += channels) {
        Bits<T> bits;
        std::memcpy(&bits, slopes + q, sizeof bits);
        at[alive] = windows[q] + offsets[*places];
        values[alive] = slopes[q];
        alive += (bits & std::numeric_limits<Bits<T>>::max()) != 0;
    }
    return alive;
}

template <class T>
static T sum_of(const T* values, int64_t count) {
    constexpr int64_t lanes = kVectorBytes / sizeof(T);
    Vec<T> sums{};
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) sums += load<T>(values + i);
    T sum = T(0);
    for (; i < count; ++i) sum += values[i];
    for (int64_t lane = 0; lane < lanes; ++lane) sum += sums[lane];
    return sum;
}

// The gradients to weight and bias. Images are summed up in groups that do not depend on the threads.
template <class T>
static int entry_stem_backward(const wb_stem* stem, const T* x, const T* pooled, const uint8_t* places, const T* dy,
                               T* dweight, T* dbias, int threads) {
    constexpr int64_t group = 8, lanes = StemLayout<T>::kLanes, together = StemLayout<T>::kSums;
    const wb_pool_norm& after = stem->after;
    const StemLayout<T> layout(*stem);
    const Response<T> response(after);
    const int64_t channels = after.channels, width = after.pooled[1], out_pixels = after.pooled[0] * width;
    const int64_t groups = (after.batch + group - 1) / group, stride = layout.vectors * lanes, sums = channels * (stride + 1);
    const int64_t planes = round_up(channels * out_pixels, lanes), working = round_up(response.scratch_size(), lanes);
    const int64_t most = layout.image + planes + working + out_pixels + 1;

    // Where what a window's first output sees begins in the image, what other places of a window add to that, and where
    // the vectors of a weight's gradient are in what an output sees; those beyond the last repeat it.
    std::vector<int32_t> windows(static_cast<size_t>(out_pixels)), vectors(static_cast<size_t>(layout.vectors));
    for (int64_t q = 0; q < out_pixels; ++q)
        windows[static_cast<size_t>(q)] =
            static_cast<int32_t>((q / width * layout.row + q % width * stem->in_channels) * after.step);
    int32_t offsets[256];
    for (int64_t k = 0; k < 256; ++k)
        offsets[k] = static_cast<int32_t>(k / after.window * layout.row + k % after.window * stem->in_channels);
    for (int64_t i = 0; i < layout.vectors; ++i) {
        const int64_t vector = std::min(i, stem->kernel[0] * layout.row_vectors - 1);
        vectors[static_cast<size_t>(i)] =
            static_cast<int32_t>(vector / layout.row_vectors * layout.row + vector % layout.row_vectors * lanes);
    }

    T* all = static_cast<T*>(scratch(Scratch::columns, static_cast<size_t>(groups * sums) * sizeof(T)));
    parallel_for(threads, groups, [&](int64_t number) {
        T* total = all + number * sums;
        for (int64_t i = 0; i < sums; ++i) total[i] = T(0);
        T* image = static_cast<T*>(scratch(Scratch::panel, static_cast<size_t>(most) * sizeof(T)));
        T* slopes = image + layout.image;
        T* memory = slopes + planes;
        T* values = memory + working;
        auto* at = static_cast<int32_t*>(scratch(Scratch::lines, static_cast<size_t>(out_pixels + 1) * sizeof(int32_t)));
        for (int64_t b = number * group; b < std::min((number + 1) * group, after.batch); ++b) {
            layout.lay_out(x + b * stem->in_channels * stem->in_size[0] * stem->in_size[1], image);
            const int64_t first = b * channels * out_pixels;
            response.backward(pooled + first, dy + first, slopes, out_pixels, memory);
            for (int64_t o = 0; o < channels; ++o) {
                const T* slope = slopes + o * out_pixels;
                total[channels * stride + o] += sum_of(slope, out_pixels);
                const int64_t alive =
                    alive_of(slope, places + first + o, channels, out_pixels, windows.data(), offsets, at, values);
                for (int64_t i = 0; i < layout.vectors; i += together)
                    add_seen(image, vectors.data() + i, at, values, alive, total + o * stride + i * lanes);
            }
        }
    });
    for (int64_t o = 0; o < channels; ++o) {
        for (int64_t tap = 0; tap < layout.taps; ++tap) {
            const int64_t ky = tap / layout.row_taps, i = tap % layout.row_taps;
            T sum = T(0);
            for (int64_t g = 0; g < groups; ++g) sum += all[g * sums + o * stride + ky * layout.row_vectors * lanes + i];
            dweight[o * layout.taps + layout.weight(tap)] = sum;
        }
        T sum = T(0);
        for (int64_t g = 0; g < groups; ++g) sum += all[g * sums + channels * stride + o];
        dbias[o] = sum;
    }
    return WB_FINE;
}

}  // namespace wb::WB_ISA
