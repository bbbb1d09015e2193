// The linear layer, y = x W^T + bias, and its gradients.
#pragma once

#include "guard.inc.cpp"
#include "linear_backward.inc.cpp"
#include "linear_forward.inc.cpp"

namespace wb::WB_ISA {

template <class T>
static int entry_linear_forward(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t batch, int64_t n_in,
                                  int64_t n_out, int64_t connections, const int64_t* colptr, const int32_t* packed_rows,
                                  const T* theta, int bound, const T* bias, int threads) {
    if (const int fault = layer_fault(Layer<T>{n_in, n_out, colptr, packed_rows, theta}, connections, bound)) return fault;
    linear_forward(x, x_stride, y, y_stride, batch, n_in, n_out, colptr, packed_rows, theta, bias, threads);
    return WB_FINE;
}

template <class T>
static int entry_linear_backward(const T* x, int64_t x_stride, const T* dy, int64_t dy_stride, T* dx,
                                   int64_t dx_stride, T* dtheta, int64_t batch, int64_t n_in, int64_t n_out,
                                   int64_t connections, const int64_t* colptr, const int32_t* packed_rows, const T* theta,
                                   int threads) {
    if (const int fault = layer_fault(Layer<T>{n_in, n_out, colptr, packed_rows, theta}, connections, 0)) return fault;
    linear_backward(x, x_stride, dy, dy_stride, dx, dx_stride, dtheta, batch, n_in, n_out, colptr, packed_rows, theta, threads);
    return WB_FINE;
}

}  // namespace wb::WB_ISA
