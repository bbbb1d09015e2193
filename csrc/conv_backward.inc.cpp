// The gradient to the input, and of every connection. Both read the same panel of dy, framed by zeros: dx needs them
// around the images, and dtheta where its tiles reach beyond the lines.
#pragma once

#include "conv_forward.inc.cpp"
#include "conv_lines.inc.cpp"
#include "conv_plan.inc.cpp"
#include "conv_tiles.inc.cpp"

namespace wb::WB_ISA {

template <class T>
static ConvPlan<T> inward_plan(const ConvShape& shape, const ConvPanel& panel, const Tiling& tiling,
                               int64_t connections) {
    const int64_t slab = (tiling.R + shape.y.last_shift()) *
                         std::min(panel.row, tiling.V * kVectorBytes / int64_t{sizeof(T)} +
                                                 shape.x.last_shift() * shape.images) * int64_t{sizeof(T)};
    ConvPlan<T> plan;
    plan.rows = shape.in_channels * shape.phases();
    plan.group_rows = shape.group_in * shape.phases();
    plan.chunk = chunk_channels(shape.group_out, slab, panel.channel, plan.rows, connections);
    plan.chunks = (shape.group_out + plan.chunk - 1) / plan.chunk;
    plan.chunk_stride = plan.chunk * panel.channel;
    plan.group_stride = shape.group_out * panel.channel;
    return plan;
}

template <class T>
static void conv_backward(const wb_conv* conv, const T* x, const T* dy, T* dx, T* dtheta, const int64_t* colptr,
                          const int32_t* packed_rows, const T* theta, int threads) {
    const ConvShape shape(*conv);
    const Layer<T> layer{shape.columns(), shape.out_channels, colptr, packed_rows, theta};
    const int64_t connections = layer.connections();
    if (dtheta != nullptr) std::fill(dtheta, dtheta + connections, T(0));
    if (shape.batch <= 0 || (dx == nullptr && (dtheta == nullptr || connections == 0))) return;
    if (conv_work(shape, layer) < kParallelWork) threads = 1;
    const ConvAxis &ay = shape.y, &ax = shape.x;
    const int64_t images = shape.images;

    // Tiles of dx cover the places that hold inputs; those of dtheta cover the outputs.
    const Tiling in_tiling =
        make_tiling<T>(ay.end_place() - ay.first_place(), (ax.end_place() - ax.first_place()) * images);
    const Tiling out_tiling = make_tiling<T>(ay.out, ax.out * images);
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

    const int64_t both = dy_panel.size + x_panel.size;
    const int64_t together = panels_together(shape.panels, both * int64_t{sizeof(T)}, threads);
    const size_t bytes = static_cast<size_t>(together * both) * sizeof(T);
    T* const space = static_cast<T*>(scratch(Scratch::panel, bytes));
    std::memset(space, 0, bytes);  // the frames; later panels only overwrite the images
    const ProductTile<T> multiply = pick_product<T>(out_tiling);
    for (int64_t first = 0; first < shape.panels; first += together) {
        const int64_t here = std::min(together, shape.panels - first);
        each_part(threads, here, shape.out_channels, [&](int64_t slot, int64_t begin, int64_t end) {
            const T* from = dy + (first + slot) * images * shape.out_image();
            pack_output(shape, dy_panel, top, left, from, shape.samples(first + slot), begin, end, space + slot * both);
        });
        if (dx != nullptr) {
            each_part(threads, here, shape.in_channels, [&](int64_t slot, int64_t begin, int64_t end) {
                const int64_t samples = shape.samples(first + slot), phases = shape.phases();
                T* to = dx + (first + slot) * images * shape.in_image();
                clear_unseen(shape, samples, begin, end, to);
                gather_bands(inward, in_tiling, space + slot * both, dy_panel.row, static_cast<const T*>(nullptr),
                             begin * phases, end * phases, [&](int64_t band, const T* lines, int64_t stride) {
                                 for (int64_t channel = begin; channel < end; ++channel, lines += phases * stride)
                                     unpack_input(shape, in_tiling, lines, stride, band, channel, samples, to);
                             });
            });
        }
        if (dtheta == nullptr) continue;
        each_part(threads, here, shape.in_channels, [&](int64_t slot, int64_t begin, int64_t end) {
            const T* from = x + (first + slot) * images * shape.in_image();
            pack_input(shape, x_panel, from, shape.samples(first + slot), begin, end,
                       space + slot * both + dy_panel.size);
        });
        // A part owns output channels, and with them their connections; panels follow each other in order.
        const int64_t width = out_tiling.line / out_tiling.parts;
        each_part(threads, 1, shape.out_channels, [&](int64_t, int64_t begin, int64_t end) {
            for (int64_t tile = 0; tile < here * out_tiling.bands * out_tiling.parts; ++tile) {
                const int64_t part = tile % out_tiling.parts, band = tile / out_tiling.parts % out_tiling.bands;
                const T* outputs = space + tile / out_tiling.parts / out_tiling.bands * both;
                const T* inputs = outputs + dy_panel.size + band * out_tiling.R * x_panel.row + part * width;
                outputs += (top + band * out_tiling.R) * dy_panel.row + left * images + part * width;
                for (int64_t chunk = 0; chunk < outward.chunks; ++chunk)
                    multiply(outward, inputs + chunk * outward.chunk_stride, x_panel.row, chunk, begin, end, outputs,
                             dy_panel.channel, dy_panel.row, sums);
            }
        });
    }
    if (dtheta != nullptr) scatter_sums(shape, layer, way_out, outward, sums, dtheta);
}

}  // namespace wb::WB_ISA
