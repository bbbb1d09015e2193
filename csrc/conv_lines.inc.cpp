// Between images [image][channel][row][column] and lines [column][image] of panels.
#pragma once

#include "conv_shape.inc.cpp"
#include "transpose.inc.cpp"

namespace wb::WB_ISA {

// line[j][b] = from[b][j] for `count` columns; images beyond `samples` become zero.
template <class T>
static void pack_line(const T* from, int64_t stride, int64_t samples, int64_t images, int64_t count, T* line) {
    constexpr int64_t step = 16 / sizeof(T);
    if (count <= 0) return;
    if (images == 1) {
        std::memcpy(line, from, static_cast<size_t>(count) * sizeof(T));
    } else if (images == kConvImages && count >= step) {
        constexpr int Bytes = kConvImages * sizeof(T);
        const int64_t whole = count / step * step, last = count - step;
        pack<T, Bytes>(from, stride, samples, whole, line);
        if (whole < count) pack<T, Bytes>(from + last, stride, samples, step, line + last * kConvImages);
    } else {
        for (int64_t b = 0; b < images; ++b)
            for (int64_t j = 0; j < count; ++j) line[j * images + b] = b < samples ? from[b * stride + j] : T(0);
    }
}

// to[b][j] = line[j][b].
template <class T>
static void unpack_line(const T* line, int64_t samples, int64_t images, int64_t count, T* to, int64_t stride) {
    constexpr int64_t side = kStripBytes<kConvImages * sizeof(T)> / sizeof(T);
    if (images == 1) {
        std::memcpy(to, line, static_cast<size_t>(count) * sizeof(T));
    } else if (images == kConvImages && count >= side) {
        constexpr int Bytes = kConvImages * sizeof(T);
        const int64_t whole = count / side * side, last = count - side;
        unpack<T, Bytes>(line, samples, whole, to, stride);
        if (whole < count) unpack<T, Bytes>(line + last * kConvImages, samples, side, to + last, stride);
    } else {
        for (int64_t b = 0; b < samples; ++b)
            for (int64_t j = 0; j < count; ++j) to[b * stride + j] = line[j * images + b];
    }
}

template <class T>
static T* line_space(int64_t count) {
    return static_cast<T*>(scratch(Scratch::lines, static_cast<size_t>(count) * sizeof(T)));
}

// Channels [first, end) of the images of one panel, each split into its phases.
template <class T>
static void pack_input(const ConvShape& shape, const ConvPanel& panel, const T* x, int64_t samples, int64_t first,
                       int64_t end, T* to) {
    const ConvAxis &ay = shape.y, &ax = shape.x;
    const int64_t images = shape.images, stride = shape.in_image();
    T* line = ax.stride > 1 ? line_space<T>(ax.in * images) : nullptr;
    for (int64_t channel = first; channel < end; ++channel) {
        for (int64_t row = 0; row < ay.in; ++row) {
            const int64_t phase = ay.phase_of_input(row);
            if (phase < 0) continue;
            const T* from = x + (channel * ay.in + row) * ax.in;
            T* target = to + (channel * shape.phases() + phase * ax.phases) * panel.channel +
                        ay.place_of_input(row) * panel.row;
            if (ax.stride == 1) {
                const int64_t seen = std::min(ax.in, ax.places() - ax.before);
                pack_line(from, stride, samples, images, seen, target + ax.before * images);
                continue;
            }
            pack_line(from, stride, samples, images, ax.in, line);
            for (int64_t column = 0; column < ax.in; ++column) {
                const int64_t place = ax.phase_of_input(column);
                if (place < 0) continue;
                std::memcpy(target + place * panel.channel + ax.place_of_input(column) * images,
                            line + column * images, static_cast<size_t>(images) * sizeof(T));
            }
        }
    }
}

// Channels [first, end) of dy of one panel; `top` and `left` are the zeros before them.
template <class T>
static void pack_output(const ConvShape& shape, const ConvPanel& panel, int64_t top, int64_t left, const T* dy,
                        int64_t samples, int64_t first, int64_t end, T* to) {
    const int64_t height = shape.y.out, width = shape.x.out;
    for (int64_t channel = first; channel < end; ++channel) {
        for (int64_t row = 0; row < height; ++row) {
            pack_line(dy + (channel * height + row) * width, shape.out_image(), samples, shape.images, width,
                      to + channel * panel.channel + (top + row) * panel.row + left * shape.images);
        }
    }
}

// A band of rows of one output channel, from the lines of a tile into y.
template <class T>
static void unpack_output(const ConvShape& shape, const Tiling& tiling, const T* lines, int64_t band, int64_t channel,
                          int64_t samples, T* y) {
    const int64_t width = shape.x.out, rows = tiling.rows_in(band);
    T* to = y + (channel * shape.y.out + band * tiling.R) * width;
    if (tiling.line == tiling.length) {  // no gaps: all rows are one line
        unpack_line(lines, samples, shape.images, rows * width, to, shape.out_image());
        return;
    }
    for (int64_t row = 0; row < rows; ++row)
        unpack_line(lines + row * tiling.line, samples, shape.images, width, to + row * width, shape.out_image());
}

// The last rows of dx become zero where no output sees them; no band covers those.
template <class T>
static void clear_unseen(const ConvShape& shape, int64_t samples, int64_t first, int64_t end, T* dx) {
    const ConvAxis& ay = shape.y;
    const int64_t seen = std::clamp<int64_t>(ay.end_place() * ay.stride - ay.before, 0, ay.in);
    const int64_t width = shape.x.in;
    for (int64_t b = 0; b < samples && seen < ay.in; ++b) {
        for (int64_t channel = first; channel < end; ++channel) {
            T* image = dx + b * shape.in_image() + channel * ay.in * width;
            std::fill(image + seen * width, image + ay.in * width, T(0));
        }
    }
}

// A band of rows of all phases of one input channel into dx. The lines hold the places from first_place on.
template <class T>
static void unpack_input(const ConvShape& shape, const Tiling& tiling, const T* lines, int64_t phase_stride,
                         int64_t band, int64_t channel, int64_t samples, T* dx) {
    const ConvAxis &ay = shape.y, &ax = shape.x;
    const int64_t images = shape.images, stride = shape.in_image();
    const int64_t first_place = ay.first_place() + band * tiling.R;
    const int64_t first_row = std::max<int64_t>(0, first_place * ay.stride - ay.before);
    const int64_t end_row = std::min(ay.in, (first_place + tiling.rows_in(band)) * ay.stride - ay.before);
    T* line = ax.stride > 1 ? line_space<T>(ax.in * images) : nullptr;
    for (int64_t row = first_row; row < end_row; ++row) {
        const int64_t phase = ay.phase_of_input(row);
        T* to = dx + (channel * ay.in + row) * ax.in;
        if (phase < 0) {
            for (int64_t b = 0; b < samples; ++b) std::fill(to + b * stride, to + b * stride + ax.in, T(0));
            continue;
        }
        const T* from = lines + phase * ax.phases * phase_stride + (ay.place_of_input(row) - first_place) * tiling.line;
        if (ax.stride == 1) {
            const int64_t seen = ax.end_place() - ax.first_place();
            if (seen == ax.in && row + 1 < end_row && tiling.line == tiling.length && ay.stride == 1) {
                unpack_line(from, samples, images, (end_row - row) * ax.in, to, stride);
                return;
            }
            unpack_line(from, samples, images, seen, to, stride);
            for (int64_t b = 0; b < samples; ++b) std::fill(to + b * stride + seen, to + b * stride + ax.in, T(0));
            continue;
        }
        for (int64_t column = 0; column < ax.in; ++column) {
            const int64_t place = ax.phase_of_input(column);
            T* target = line + column * images;
            if (place < 0) std::fill(target, target + images, T(0));
            else
                std::memcpy(target,
                            from + place * phase_stride + (ax.place_of_input(column) - ax.first_place()) * images,
                            static_cast<size_t>(images) * sizeof(T));
        }
        unpack_line(line, samples, images, ax.in, to, stride);
    }
}

}  // namespace wb::WB_ISA
