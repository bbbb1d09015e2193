// One layer, dense or sparse, on panels [feature][V * 8 samples]; what the fused step and the stack of the module path
// share.
#pragma once

#include "fused_dense.inc.cpp"
#include "fused_sparse.inc.cpp"
#include "vector_math.inc.cpp"

namespace wb::WB_ISA {

struct PanelLayer {
    int64_t n_in, n_out;
    int32_t activation;
    const float* weight;     // dense; null: sparse, and `part` holds the weights
    const float* bias;       // or null
    SparsePart part;
    float* weight_gradient;  // dense
    float* bias_gradient;    // or null
    float* output;           // a panel: what the layer gives
    float* delta;            // a panel: the gradient of what its function took
};

// `ranges` as in forward_sparse.
template <int V>
static void forward_layer(const PanelLayer& layer, const std::vector<Range>& ranges, const float* x) {
    start_outputs<V>(layer.bias, layer.n_out, layer.output);
    if (layer.weight) forward_dense<V>(layer.weight, layer.n_in, layer.n_out, x, layer.output);
    else forward_sparse<V>(layer.part, ranges, x, layer.output);
    activate(layer.activation, layer.output, layer.n_out * V * 8);
}

// From delta. Gradients of the parameters are added to. Unless dx is null, it becomes the gradient of what the function
// `activation` took to give x, which is the delta of the layer before.
template <int V>
static void backward_layer(const PanelLayer& layer, const std::vector<Range>& ranges, int32_t activation,
                           const float* x, float* dx) {
    if (layer.bias_gradient) backward_bias<V>(layer.n_out, layer.delta, layer.bias_gradient);
    if (layer.weight == nullptr) return backward_sparse<V>(layer.part, ranges, activation, x, layer.delta, dx);
    backward_dense<V>(layer.weight, layer.n_in, layer.n_out, x, layer.delta, layer.weight_gradient, dx);
    if (dx) activate_backward(activation, x, dx, layer.n_in * V * 8);
}

}  // namespace wb::WB_ISA
