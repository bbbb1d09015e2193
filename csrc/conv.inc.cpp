// Sparse convolution and its gradients: direct, on panels of up to eight images.
//
// A panel holds its images innermost, [channel][row][column][image], padding included. One connection then is
//     y[out channel][row][all columns and images] += weight * x[in channel][row + a][the same, b columns on]
// over whole lines of memory, whatever the batch. Strides are taken out beforehand: an input with stride s is s * s
// inputs ("phases") with stride 1. The gradient to the input is the same sum with the roles of x and y exchanged.

#include "conv_shape.inc.cpp"

#include "conv_lines.inc.cpp"

#include "conv_plan.inc.cpp"

#include "conv_tiles.inc.cpp"

#include "conv_forward.inc.cpp"

#include "conv_backward.inc.cpp"

static void fill_conv(KernelTable& table) {
    table.conv_forward_f32 = conv_forward<float>;
    table.conv_forward_f64 = conv_forward<double>;
    table.conv_backward_f32 = conv_backward<float>;
    table.conv_backward_f64 = conv_backward<double>;
}
