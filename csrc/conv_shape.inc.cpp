// Where everything of a convolution is: phases of the input, and panels.
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

// Images of a panel: a vector of them, so that every line starts at a whole vector, but eight at least; fewer if the
// batch is smaller. `element` is the bytes of a number.
WB_INLINE int64_t conv_images(int64_t batch, int64_t element) {
    if (batch <= 4) return batch <= 2 ? batch : 4;
    const int64_t eights = (batch + 7) / 8;
    return eights == 1 || eights == 3 ? 8 : std::max<int64_t>(8, kVectorBytes / element);
}

// A panel: channels of rows of numbers, zero but for a frame that images are written into.
struct ConvPanel {
    int64_t row = 0;      // numbers from a row to the next
    int64_t channel = 0;  // and from a channel to the next
    int64_t filled = 0;   // numbers of all channels
    int64_t size = 0;     // numbers in all, with what tiles read too far

    ConvPanel() = default;
    ConvPanel(int64_t channels, int64_t rows, int64_t row_length, int64_t excess, int64_t element)
        : row(row_length), channel(rows * row_length) {
        // Channels a multiple of 1 KB apart compete for the same lines of the first cache.
        if (channel * element % 1024 == 0) channel += 64 * 3 / element;
        filled = channels * channel;
        size = round_up(filled + excess, 16);  // the next panel starts at a cache line
    }
};

// All of a convolution that does not depend on the gradients wanted.
struct ConvShape {
    int64_t batch, in_channels, out_channels, groups, group_in, group_out;
    ConvAxis y, x;     // height, width
    int64_t images;    // of a panel
    int64_t panels;

    ConvShape(const wb_conv& conv, int64_t element)
        : batch(conv.batch), in_channels(conv.in_channels), out_channels(conv.out_channels), groups(conv.groups),
          group_in(conv.in_channels / conv.groups), group_out(conv.out_channels / conv.groups), y(conv, 0), x(conv, 1),
          images(conv_images(conv.batch, element)), panels(images > 0 ? (batch + images - 1) / images : 0) {}
    int64_t phases() const { return y.phases * x.phases; }
    int64_t in_image() const { return in_channels * y.in * x.in; }
    int64_t out_image() const { return out_channels * y.out * x.out; }
    int64_t columns() const { return group_in * y.kernel * x.kernel; }
    int64_t samples(int64_t panel) const { return std::min(images, batch - panel * images); }
};

}  // namespace wb::WB_ISA
