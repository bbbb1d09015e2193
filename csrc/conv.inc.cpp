// Sparse convolution and its gradients: direct, on panels of up to a vector of images.
//
// A panel holds its images innermost, [channel][row][column][image], padding included. One connection then is
//     y[out channel][row][all columns and images] += weight * x[in channel][row + a][the same, b columns on]
// over whole lines of memory, whatever the batch. Strides are taken out beforehand: an input with stride s is s * s
// inputs ("phases") with stride 1. The gradient to the input is the same sum with the roles of x and y exchanged.
#pragma once

#include "conv_backward.inc.cpp"
#include "conv_forward.inc.cpp"
#include "guard.inc.cpp"

namespace wb::WB_ISA {

template <class T>
static int entry_conv_forward(const wb_conv* conv, const T* x, T* y, int64_t connections, const int64_t* colptr,
                                const int32_t* packed_rows, const T* theta, int bound, const T* bias, int threads) {
    const ConvShape shape(*conv, sizeof(T));
    const Layer<T> layer{shape.columns(), shape.out_channels, colptr, packed_rows, theta};
    if (const int fault = layer_fault(layer, connections, bound)) return fault;
    conv_forward(conv, x, y, colptr, packed_rows, theta, bias, threads);
    return WB_FINE;
}

template <class T>
static int entry_conv_backward(const wb_conv* conv, const T* x, const T* dy, T* dx, T* dtheta, int64_t connections,
                                 const int64_t* colptr, const int32_t* packed_rows, const T* theta, int threads) {
    const ConvShape shape(*conv, sizeof(T));
    const Layer<T> layer{shape.columns(), shape.out_channels, colptr, packed_rows, theta};
    if (const int fault = layer_fault(layer, connections, 0)) return fault;
    conv_backward(conv, x, dy, dx, dtheta, colptr, packed_rows, theta, threads);
    return WB_FINE;
}

}  // namespace wb::WB_ISA
