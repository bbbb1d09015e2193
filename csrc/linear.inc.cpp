// The linear layer, y = x W^T + bias, and its gradients.

#include "linear_backward.inc.cpp"
#include "linear_forward.inc.cpp"

static void fill_linear(KernelTable& table) {
    table.linear_forward_f32 = linear_forward<float>;
    table.linear_forward_f64 = linear_forward<double>;
    table.linear_backward_f32 = linear_backward<float>;
    table.linear_backward_f64 = linear_backward<double>;
}
