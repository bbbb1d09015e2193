// y = x * W + bias; and what it shares with the gradient to the input, which is the same pass the other way.
#pragma once

#include "conv_pixels.inc.cpp"
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

// Calls body(panel, first channel, end channel) for all channels of each panel, in at least `wanted` pieces if there
// are as many channels.
template <class Body>
WB_INLINE void each_part(int threads, int64_t wanted, int64_t panels, int64_t channels, Body&& body) {
    const int64_t parts =
        threads <= 1 ? 1 : std::clamp<int64_t>((wanted + panels - 1) / panels, 1, std::max<int64_t>(1, channels));
    parallel_for(threads, panels * parts, [&](int64_t piece) {
        const int64_t part = piece % parts;
        body(piece / parts, channels * part / parts, channels * (part + 1) / parts);
    });
}

// How often threads that share a panel, or panels, can take another piece: the more, the less they wait in the end.
constexpr int64_t kPieces = 4;

static Pass outward_pass(const ConvShape& shape, int64_t connections) {
    return {shape.y.out, shape.x.out * shape.images, shape.group_in, shape.phases(), shape.y.last_shift(),
            shape.x.last_shift() * shape.images, shape.y.first_place(), shape.y.end_place(),
            connections / std::max<int64_t>(1, shape.out_channels)};
}

template <class T>
static ConvPlan<T> outward_plan(const ConvShape& shape, const ConvPanel& panel, const Tiling& tiling,
                                int64_t connections) {
    ConvPlan<T> plan;
    plan.rows = shape.out_channels;
    plan.group_rows = shape.group_out;
    plan.chunk = chunk_channels(shape.group_in, tiling.slab, shape.phases() * panel.channel, plan.rows, connections);
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

// Rows of lines that are computed before they are taken away: a block of whole bands. What they take stays in a second
// cache; with more threads than panels, there are blocks for all.
static int64_t block_bands(const Tiling& tiling, int64_t channels, int64_t element, int64_t panels, int threads) {
    constexpr int64_t most_bytes = 768 << 10;
    const int64_t band_bytes = std::max<int64_t>(1, channels * tiling.R * tiling.line * element);
    int64_t blocks = tiling.bands / std::max<int64_t>(1, most_bytes / band_bytes);
    if (threads > 1) blocks = std::max(blocks, (2 * threads + panels - 1) / panels);
    blocks = std::clamp<int64_t>(blocks, 1, std::max<int64_t>(1, tiling.bands));
    return std::max<int64_t>(1, (tiling.bands + blocks - 1) / blocks);
}

// The lines of output channels [first, end), bands [band, end_band), into `lines`, `stride` numbers a channel.
template <class T>
static void gather_bands(const ConvPlan<T>& plan, const Tiling& tiling, const RowMasks& masks, GatherTile<T> gather,
                         const T* panel, int64_t row_stride, const T* bias, int64_t first, int64_t end, int64_t band,
                         int64_t end_band, T* lines, int64_t stride) {
    const int64_t width = tiling.line / tiling.parts;
    for (; band < end_band; ++band, lines += tiling.R * tiling.line) {
        for (int64_t part = 0; part < tiling.parts; ++part) {
            const T* from = panel + band * tiling.R * row_stride + part * width;
            for (int64_t chunk = 0; chunk < plan.chunks; ++chunk)
                gather(plan, masks.band(band), from + chunk * plan.chunk_stride, row_stride, chunk, first, end, bias,
                       lines + part * width, stride, tiling.line);
        }
    }
}

// All lines of `panels` panels: done(panel, first channel, end channel, first row, end row, lines, is it the last
// block) takes them away, a block at a time. A channel here is `phases` channels of the plan.
template <class T, class Done>
static void gather_panels(int threads, int64_t panels, const ConvPlan<T>& plan, const Tiling& tiling,
                          const RowMasks& masks, int64_t bands, const T* space, int64_t panel_size, int64_t row_stride,
                          const T* bias, int64_t channels, Done&& done) {
    const GatherTile<T> gather = TileFunctions<T>(tiling).gather;
    const int64_t phases = plan.rows / std::max<int64_t>(1, channels), stride = bands * tiling.R * tiling.line;
    const int64_t blocks = std::max<int64_t>(1, (tiling.bands + bands - 1) / bands);
    each_part(threads, threads, panels * blocks, channels, [&](int64_t piece, int64_t begin, int64_t end) {
        const int64_t block = piece % blocks, slot = piece / blocks;
        const int64_t band = block * bands, end_band = std::min(tiling.bands, band + bands);
        const size_t size = static_cast<size_t>((end - begin) * phases * stride);
        T* lines = static_cast<T*>(scratch(Scratch::columns, size * sizeof(T)));
        gather_bands(plan, tiling, masks, gather, space + slot * panel_size, row_stride, bias, begin * phases,
                     end * phases, band, end_band, lines, stride);
        done(slot, begin, end, band * tiling.R, std::min(tiling.rows, end_band * tiling.R), lines, block + 1 == blocks);
    });
}

// Rows [first, end) of `channels` channels of images, from lines that start `origin` numbers into the map.
template <class T>
static void unpack_rows(const ConvShape& shape, const PixelMap& map, int64_t samples, int64_t channels, int64_t first,
                        int64_t end, const T* lines, int64_t origin, T* to, int64_t stride) {
    const int64_t from = first * map.width, stop = end * map.width, all = map.pixels();
    if (stop - from == all) {
        unpack_pixels(Pixels<T>{map, 0, all, channels, shape.images, samples, stride, origin}, lines, to);
        return;
    }
    for (int64_t channel = 0; channel < channels; ++channel)
        unpack_pixels(Pixels<T>{map, from, stop, 1, shape.images, samples, stride, origin},
                      lines + channel * map.channel, to + channel * all + from);
}

// Room for panels. What lies behind the channels is zero, because tiles read it; channels are written whole.
template <class T>
static T* panel_space(const ConvPanel* panels, int many, int64_t together) {
    int64_t size = 0;
    for (int i = 0; i < many; ++i) size += panels[i].size;
    T* const space = static_cast<T*>(scratch(Scratch::panel, static_cast<size_t>(together * size) * sizeof(T)));
    T* panel = space;
    for (int64_t slot = 0; slot < together; ++slot) {
        for (int i = 0; i < many; panel += panels[i++].size)
            std::fill(panel + panels[i].filled, panel + panels[i].size, T(0));
    }
    return space;
}

template <class T>
static void conv_forward(const wb_conv* conv, const T* x, T* y, const int64_t* colptr, const int32_t* packed_rows,
                         const T* theta, const T* bias, int threads) {
    const ConvShape shape(*conv, sizeof(T));
    const Layer<T> layer{shape.columns(), shape.out_channels, colptr, packed_rows, theta};
    if (shape.batch <= 0 || shape.out_image() <= 0) return;
    if (conv_work(shape, layer) < kParallelWork) threads = 1;
    const Tiling tiling = make_tiling<T>(outward_pass(shape, layer.connections()));
    const ConvPanel panel = input_panel<T>(shape, tiling);
    ConvPlan<T> plan = outward_plan<T>(shape, panel, tiling, layer.connections());
    fill_plan(shape, layer, Outward<T>{shape, panel, plan}, plan,
              scratch(Scratch::connections, plan_bytes(plan, layer.connections())));

    const RowMasks masks(tiling, shape.y.last_shift());
    const int64_t together = panels_together(shape.panels, panel.size * int64_t{sizeof(T)}, threads);
    const int64_t bands = block_bands(tiling, plan.rows, sizeof(T), together, threads);
    const PixelMap inputs = map_input(shape, panel.channel, panel.row, 0, 0);
    const PixelMap outputs = map_output(shape, bands * tiling.R * tiling.line, tiling.line, 0, 0);
    T* const space = panel_space<T>(&panel, 1, together);
    for (int64_t first = 0; first < shape.panels; first += together) {
        const int64_t here = std::min(together, shape.panels - first);
        each_part(threads, kPieces * threads, here, shape.in_channels, [&](int64_t slot, int64_t begin, int64_t end) {
            const T* from = x + (first + slot) * shape.images * shape.in_image();
            pack_channels(inputs, from, shape.in_image(), shape.images, shape.samples(first + slot), begin, end,
                          space + slot * panel.size);
        });
        gather_panels(threads, here, plan, tiling, masks, bands, space, panel.size, panel.row, bias, shape.out_channels,
                      [&](int64_t slot, int64_t begin, int64_t end, int64_t row, int64_t end_row, const T* lines,
                          bool) {
                          T* to = y + (first + slot) * shape.images * shape.out_image() + begin * outputs.pixels();
                          unpack_rows(shape, outputs, shape.samples(first + slot), end - begin, row, end_row,
                                      lines, row * tiling.line, to, shape.out_image());
                      });
    }
}

}  // namespace wb::WB_ISA
