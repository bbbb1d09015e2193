// y = x * W + bias.
#pragma once

#include "conv_lines.inc.cpp"
#include "conv_plan.inc.cpp"
#include "conv_tiles.inc.cpp"

namespace wb::WB_ISA {

// Multiply-adds of a pass, to see whether more threads are worth it.
template <class T>
static int64_t conv_work(const ConvShape& shape, const Layer<T>& layer) {
    return (layer.connections() + shape.out_channels) * shape.y.out * shape.x.out * shape.batch;
}

// Panels at a time: one for each thread, as long as they are not too large together.
static int64_t panels_together(int64_t panels, int64_t panel_bytes, int threads) {
    constexpr int64_t most_bytes = int64_t{64} << 20;
    return std::clamp<int64_t>(most_bytes / std::max<int64_t>(1, panel_bytes), 1, std::min<int64_t>(panels, threads));
}

// Calls body(panel, first channel, end channel) for all channels of each panel, in as many parts as threads need.
template <class Body>
WB_INLINE void each_part(int threads, int64_t panels, int64_t channels, Body&& body) {
    const int64_t parts =
        threads <= 1 ? 1 : std::clamp<int64_t>((4 * threads + panels - 1) / panels, 1, std::max<int64_t>(1, channels));
    parallel_for(threads, panels * parts, [&](int64_t piece) {
        const int64_t part = piece % parts;
        body(piece / parts, channels * part / parts, channels * (part + 1) / parts);
    });
}

template <class T>
static ConvPlan<T> outward_plan(const ConvShape& shape, const ConvPanel& panel, const Tiling& tiling,
                                int64_t connections) {
    const int64_t slab = shape.phases() * (tiling.R + shape.y.last_shift()) *
                         std::min(panel.row, tiling.V * kVectorBytes / int64_t{sizeof(T)} +
                                                 shape.x.last_shift() * shape.images) * int64_t{sizeof(T)};
    ConvPlan<T> plan;
    plan.rows = shape.out_channels;
    plan.group_rows = shape.group_out;
    plan.chunk = chunk_channels(shape.group_in, slab, shape.phases() * panel.channel, plan.rows, connections);
    plan.chunks = (shape.group_in + plan.chunk - 1) / plan.chunk;
    plan.chunk_stride = plan.chunk * shape.phases() * panel.channel;
    plan.group_stride = shape.group_in * shape.phases() * panel.channel;
    return plan;
}

// The panel of x, for outputs computed in these tiles.
template <class T>
static ConvPanel input_panel(const ConvShape& shape, const Tiling& tiling) {
    const int64_t row = shape.x.places() * shape.images;
    const int64_t excess = (tiling.padded_rows() - tiling.rows) * row + tiling.line - tiling.length;
    return {shape.in_channels * shape.phases(), shape.y.places(), row, excess, sizeof(T)};
}

// The lines of output channels [first, end), a band of rows at a time; done(band, lines, numbers from a channel to the
// next) takes them away.
template <class T, class Done>
static void gather_bands(const ConvPlan<T>& plan, const Tiling& tiling, const T* panel, int64_t row_stride,
                         const T* bias, int64_t first, int64_t end, Done&& done) {
    const GatherTile<T> gather = pick_gather<T>(tiling);
    const int64_t width = tiling.line / tiling.parts, stride = tiling.R * tiling.line;
    const size_t size = static_cast<size_t>((end - first) * stride);
    T* lines = static_cast<T*>(scratch(Scratch::columns, size * sizeof(T)));
    for (int64_t band = 0; band < tiling.bands; ++band) {
        for (int64_t row = first; row < end; ++row) {
            T* line = lines + (row - first) * stride;
            std::fill(line, line + stride, bias == nullptr ? T(0) : bias[row]);
        }
        for (int64_t part = 0; part < tiling.parts; ++part) {
            const T* from = panel + band * tiling.R * row_stride + part * width;
            for (int64_t chunk = 0; chunk < plan.chunks; ++chunk)
                gather(plan, from + chunk * plan.chunk_stride, row_stride, chunk, first, end, lines + part * width,
                       stride, tiling.line);
        }
        done(band, lines, stride);
    }
}

template <class T>
static void conv_forward(const wb_conv* conv, const T* x, T* y, const int64_t* colptr, const int32_t* packed_rows,
                         const T* theta, const T* bias, int threads) {
    const ConvShape shape(*conv);
    const Layer<T> layer{shape.columns(), shape.out_channels, colptr, packed_rows, theta};
    if (shape.batch <= 0 || shape.out_image() <= 0) return;
    if (conv_work(shape, layer) < kParallelWork) threads = 1;
    const Tiling tiling = make_tiling<T>(shape.y.out, shape.x.out * shape.images);
    const ConvPanel panel = input_panel<T>(shape, tiling);
    ConvPlan<T> plan = outward_plan<T>(shape, panel, tiling, layer.connections());
    fill_plan(shape, layer, Outward<T>{shape, panel, plan}, plan,
              scratch(Scratch::connections, plan_bytes(plan, layer.connections())));

    const int64_t together = panels_together(shape.panels, panel.size * int64_t{sizeof(T)}, threads);
    const size_t bytes = static_cast<size_t>(together * panel.size) * sizeof(T);
    T* const space = static_cast<T*>(scratch(Scratch::panel, bytes));
    std::memset(space, 0, bytes);  // the padding; later panels only overwrite the images
    for (int64_t first = 0; first < shape.panels; first += together) {
        const int64_t here = std::min(together, shape.panels - first);
        each_part(threads, here, shape.in_channels, [&](int64_t slot, int64_t begin, int64_t end) {
            const T* from = x + (first + slot) * shape.images * shape.in_image();
            pack_input(shape, panel, from, shape.samples(first + slot), begin, end, space + slot * panel.size);
        });
        each_part(threads, here, shape.out_channels, [&](int64_t slot, int64_t begin, int64_t end) {
            const int64_t samples = shape.samples(first + slot);
            T* to = y + (first + slot) * shape.images * shape.out_image();
            gather_bands(plan, tiling, space + slot * panel.size, panel.row, bias, begin, end,
                         [&](int64_t band, const T* lines, int64_t stride) {
                             for (int64_t row = begin; row < end; ++row, lines += stride)
                                 unpack_output(shape, tiling, lines, band, row, samples, to);
                         });
        });
    }
}

}  // namespace wb::WB_ISA
