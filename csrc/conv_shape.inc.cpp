// Where everything of a convolution is: phases of the input, panels, and the tiles in which lines are computed.
#pragma once

#include "layer.inc.cpp"

namespace wb::WB_ISA {

// One of the two axes. Input position p stands at place (p + before) / stride of phase (p + before) % stride; kernel
// position k sees, from an output at place i, place i + shift(k) of phase phase(k).
struct ConvAxis {
    int64_t in, out, kernel, stride, before, dilation;
    std::vector<int64_t> number;  // of each remainder among the phases that the kernel sees, or -1
    int64_t phases = 0;

    ConvAxis(const wb_conv& conv, int axis)
        : in(conv.in_size[axis]), out(conv.out_size[axis]), kernel(conv.kernel[axis]), stride(conv.stride[axis]),
          before(conv.before[axis]), dilation(conv.dilation[axis]), number(static_cast<size_t>(stride), -1) {
        for (int64_t k = 0; k < kernel; ++k) number[static_cast<size_t>(k * dilation % stride)] = 0;
        for (auto& entry : number)
            if (entry == 0) entry = phases++;
    }
    int64_t shift(int64_t k) const { return k * dilation / stride; }
    int64_t phase(int64_t k) const { return number[static_cast<size_t>(k * dilation % stride)]; }
    int64_t last_shift() const { return shift(kernel - 1); }
    int64_t places() const { return out + last_shift(); }  // that outputs see, in each phase

    // Where an input stands: its phase, or -1 if no output sees it, and its place.
    int64_t phase_of_input(int64_t position) const {
        return place_of_input(position) < places() ? number[static_cast<size_t>((position + before) % stride)] : -1;
    }
    int64_t place_of_input(int64_t position) const { return (position + before) / stride; }

    // The places [first_place, end_place) hold all inputs; those outside are padding.
    int64_t first_place() const { return std::min(before / stride, places()); }
    int64_t end_place() const {
        return in > 0 ? std::max(first_place(), std::min((in - 1 + before) / stride + 1, places())) : first_place();
    }
};

// Images of a panel: eight, so that a line of them is whole vectors; fewer if the batch is smaller.
constexpr int64_t kConvImages = 8;
WB_INLINE int64_t conv_images(int64_t batch) { return batch <= 2 ? batch : batch <= 4 ? 4 : kConvImages; }

// How lines of `length` numbers in `rows` rows are computed: in tiles of R rows by V vectors, which stay in registers.
// A line has `parts` tiles; `bands` tiles of rows cover the rows. Lines and rows are rounded up.
struct Tiling {
    int V, R;
    int64_t parts, bands, rows, length;
    int64_t line;  // numbers in the tiles of a line

    int64_t padded_rows() const { return bands * R; }
    int64_t rows_in(int64_t band) const { return std::min<int64_t>(R, rows - band * R); }
};

// Twelve vectors of sums and a weight fill the sixteen registers of most instruction sets.
constexpr int kTileVectors = 12;

// Rows that a tile of V vectors may have, most first.
WB_INLINE const int* tile_rows(int V) {
    static const int rows[kTileVectors + 1][5] = {{0}, {12, 6, 3, 1}, {6, 3, 2, 1}, {4, 2, 1}, {3, 2, 1}, {2, 1},
                                                  {2, 1}, {1}, {1}, {1}, {1}, {1}, {1}};
    return rows[V];
}

template <class T>
static Tiling make_tiling(int64_t rows, int64_t length) {
    constexpr int64_t lanes = kVectorBytes / sizeof(T);
    const int64_t vectors = std::max<int64_t>(1, (length + lanes - 1) / lanes);
    Tiling tiling{};
    tiling.rows = rows;
    tiling.length = length;
    tiling.parts = (vectors + kTileVectors - 1) / kTileVectors;
    tiling.V = static_cast<int>((vectors + tiling.parts - 1) / tiling.parts);
    tiling.line = tiling.parts * tiling.V * lanes;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const int* R = tile_rows(tiling.V); *R != 0; ++R) {
        const int64_t bands = (rows + *R - 1) / *R;
        const int64_t cost = bands * (*R * tiling.V + 3);  // a connection costs some three vectors beside the sums
        if (cost < least) least = cost, tiling.R = *R, tiling.bands = bands;
    }
    return tiling;
}

// A panel: channels of rows of numbers, zero but for a frame that images are written into.
struct ConvPanel {
    int64_t row = 0;      // numbers from a row to the next
    int64_t channel = 0;  // and from a channel to the next
    int64_t size = 0;     // numbers in all, with what tiles read too far

    ConvPanel() = default;
    ConvPanel(int64_t channels, int64_t rows, int64_t row_length, int64_t excess, int64_t element)
        : row(row_length), channel(rows * row_length) {
        // Channels a multiple of 1 KB apart compete for the same lines of the first cache.
        if (channel * element % 1024 == 0) channel += 64 * 3 / element;
        size = round_up(channels * channel + excess, 16);  // the next panel starts at a cache line
    }
};

// All of a convolution that does not depend on the gradients wanted.
struct ConvShape {
    int64_t batch, in_channels, out_channels, groups, group_in, group_out;
    ConvAxis y, x;     // height, width
    int64_t images;    // of a panel
    int64_t panels;

    explicit ConvShape(const wb_conv& conv)
        : batch(conv.batch), in_channels(conv.in_channels), out_channels(conv.out_channels), groups(conv.groups),
          group_in(conv.in_channels / conv.groups), group_out(conv.out_channels / conv.groups), y(conv, 0), x(conv, 1),
          images(conv_images(conv.batch)), panels(images > 0 ? (batch + images - 1) / images : 0) {}
    int64_t phases() const { return y.phases * x.phases; }
    int64_t in_image() const { return in_channels * y.in * x.in; }
    int64_t out_image() const { return out_channels * y.out * x.out; }
    int64_t columns() const { return group_in * y.kernel * x.kernel; }
    int64_t samples(int64_t panel) const { return std::min(images, batch - panel * images); }
};

}  // namespace wb::WB_ISA
