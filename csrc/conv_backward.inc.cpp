// The gradient to the input, and of every connection. Both read the same panel of dy, framed by zeros: dx needs them
// around the images, and dtheta where its tiles reach beyond the lines.
#pragma once

#include "conv_forward.inc.cpp"

namespace wb::WB_ISA {

static Pass inward_pass(const ConvShape& shape, int64_t connections) {
    const ConvAxis &ay = shape.y, &ax = shape.x;
    return {ay.end_place() - ay.first_place(), (ax.end_place() - ax.first_place()) * shape.images, shape.group_out, 1,
            ay.last_shift(), ax.last_shift() * shape.images, ay.last_shift() - ay.first_place(),
            ay.last_shift() - ay.first_place() + ay.out,
            connections / std::max<int64_t>(1, shape.group_in * shape.phases())};
}

template <class T>
static ConvPlan<T> inward_plan(const ConvShape& shape, const ConvPanel& panel, const Tiling& tiling,
                               int64_t connections) {
    ConvPlan<T> plan;
    plan.rows = shape.in_channels * shape.phases();
    plan.group_rows = shape.group_in * shape.phases();
    plan.chunk = chunk_channels(shape.group_out, tiling.slab, panel.channel, plan.rows, connections);
    plan.chunks = (shape.group_out + plan.chunk - 1) / plan.chunk;
    plan.chunk_stride = plan.chunk * panel.channel;
    plan.group_stride = shape.group_out * panel.channel;
    return plan;
}

template <class T>
static void conv_backward(const wb_conv* conv, const T* x, const T* dy, T* dx, T* dtheta, const int64_t* colptr,
                          const int32_t* packed_rows, const T* theta, int threads) {
    const ConvShape shape(*conv, sizeof(T));
    const Layer<T> layer{shape.columns(), shape.out_channels, colptr, packed_rows, theta};
    const int64_t connections = layer.connections();
    if (dtheta != nullptr) std::fill(dtheta, dtheta + connections, T(0));
    if (shape.batch <= 0 || (dx == nullptr && (dtheta == nullptr || connections == 0))) return;
    if (conv_work(shape, layer) < kParallelWork) threads = 1;
    const ConvAxis &ay = shape.y, &ax = shape.x;
    const int64_t images = shape.images;

    // Tiles of dx cover the places that hold inputs; those of dtheta cover the outputs.
    const Tiling in_tiling = make_tiling<T>(inward_pass(shape, connections));
    const Tiling out_tiling = make_tiling<T>(outward_pass(shape, connections));
    const int64_t top = dx == nullptr ? 0 : std::max<int64_t>(0, ay.last_shift() - ay.first_place());
    const int64_t left = dx == nullptr ? 0 : std::max<int64_t>(0, ax.last_shift() - ax.first_place());
    const int64_t row = left * images + std::max(out_tiling.line, dx == nullptr ? 0 : ax.end_place() * images);
    const int64_t rows = top + std::max(out_tiling.padded_rows(), dx == nullptr ? 0 : ay.end_place());
    const int64_t excess = (in_tiling.padded_rows() - in_tiling.rows) * row + in_tiling.line;
    const ConvPanel dy_panel(shape.out_channels, rows, row, excess, sizeof(T));
    const ConvPanel x_panel = dtheta == nullptr ? ConvPanel() : input_panel<T>(shape, out_tiling);

    ConvPlan<T> inward, outward;
    size_t inward_bytes = 0, outward_bytes = 0, sums_bytes = 0;
    if (dx != nullptr) {
        inward = inward_plan<T>(shape, dy_panel, in_tiling, connections);
        inward_bytes = plan_bytes(inward, connections);
    }
    if (dtheta != nullptr) {
        outward = outward_plan<T>(shape, x_panel, out_tiling, connections);
        outward_bytes = plan_bytes(outward, connections);
        sums_bytes = static_cast<size_t>(connections) * sizeof(T);
    }
    char* const plans = static_cast<char*>(scratch(Scratch::connections, inward_bytes + outward_bytes + sums_bytes));
    T* const sums = reinterpret_cast<T*>(plans + inward_bytes + outward_bytes);
    const Outward<T> way_out{shape, x_panel, outward};
    if (dx != nullptr)
        fill_plan(shape, layer, Inward<T>(shape, dy_panel, inward, top, left), inward, plans);
    if (dtheta != nullptr) {
        fill_plan(shape, layer, way_out, outward, plans + inward_bytes);
        std::memset(sums, 0, sums_bytes);
    }

    const ConvPanel panels[2] = {dy_panel, x_panel};
    const int64_t both = dy_panel.size + x_panel.size;
    const int64_t together = panels_together(shape.panels, both * int64_t{sizeof(T)}, threads);
    T* const space = panel_space<T>(panels, 2, together);
    const int64_t bands = block_bands(in_tiling, shape.in_channels * shape.phases(), sizeof(T), together, threads);
    const PixelMap dy_map = map_output(shape, dy_panel.channel, dy_panel.row, top, left);
    const PixelMap x_map = map_input(shape, x_panel.channel, x_panel.row, 0, 0);
    const PixelMap dx_map =
        map_input(shape, bands * in_tiling.R * in_tiling.line, in_tiling.line, ay.first_place(), ax.first_place());
    const ProductTile<T> multiply = TileFunctions<T>(out_tiling).product;
    const RowMasks in_masks(in_tiling, ay.last_shift());
    for (int64_t first = 0; first < shape.panels; first += together) {
        const int64_t here = std::min(together, shape.panels - first);
        each_part(threads, kPieces * threads, here, shape.out_channels, [&](int64_t slot, int64_t begin, int64_t end) {
            const T* from = dy + (first + slot) * images * shape.out_image();
            pack_channels(dy_map, from, shape.out_image(), images, shape.samples(first + slot), begin, end,
                          space + slot * both);
        });
        if (dx != nullptr) {
            // Rows of the input from which a place on outputs see it; the last block takes what none sees, too.
            const auto input_row = [&](int64_t place) {
                return std::clamp<int64_t>((ay.first_place() + place) * ay.stride - ay.before, 0, ay.in);
            };
            gather_panels(threads, here, inward, in_tiling, in_masks, bands, space, both, dy_panel.row,
                          static_cast<const T*>(nullptr), shape.in_channels,
                          [&](int64_t slot, int64_t begin, int64_t end, int64_t place, int64_t end_place,
                              const T* lines, bool last) {
                              T* to = dx + (first + slot) * images * shape.in_image() + begin * dx_map.pixels();
                              unpack_rows(shape, dx_map, shape.samples(first + slot), end - begin,
                                          place == 0 ? 0 : input_row(place), last ? ay.in : input_row(end_place), lines,
                                          place * in_tiling.line, to, shape.in_image());
                          });
        }
        if (dtheta == nullptr) continue;
        each_part(threads, kPieces * threads, here, shape.in_channels, [&](int64_t slot, int64_t begin, int64_t end) {
            const T* from = x + (first + slot) * images * shape.in_image();
            pack_channels(x_map, from, shape.in_image(), images, shape.samples(first + slot), begin, end,
                          space + slot * both + dy_panel.size);
        });
        // A piece owns a chunk of input channels and some output channels, and with them their connections; panels
        // follow each other in order.
        const int64_t width = out_tiling.line / out_tiling.parts, tiles = out_tiling.tiles();
        const auto add_products = [&](int64_t tile, int64_t chunk, int64_t begin, int64_t end) {
            const int64_t part = tile % out_tiling.parts, band = tile % tiles / out_tiling.parts;
            const T* outputs = space + tile / tiles * both;
            const T* inputs = outputs + dy_panel.size + band * out_tiling.R * x_panel.row + part * width;
            outputs += (top + band * out_tiling.R) * dy_panel.row + left * images + part * width;
            multiply(outward, inputs + chunk * outward.chunk_stride, x_panel.row, chunk, begin, end, outputs,
                     dy_panel.channel, dy_panel.row, sums);
        };
        if (threads <= 1) {  // all of a tile of dy while it is in the second cache
            for (int64_t tile = 0; tile < here * tiles; ++tile)
                for (int64_t chunk = 0; chunk < outward.chunks; ++chunk)
                    add_products(tile, chunk, 0, shape.out_channels);
            continue;
        }
        each_part(threads, kPieces * threads, outward.chunks, shape.out_channels,
                  [&](int64_t chunk, int64_t begin, int64_t end) {
                      for (int64_t tile = 0; tile < here * tiles; ++tile) add_products(tile, chunk, begin, end);
                  });
    }
    if (dtheta != nullptr) scatter_sums(shape, layer, way_out, outward, sums, dtheta);
}

}  // namespace wb::WB_ISA
