// One layer, dense or sparse, on panels [feature][V * 8 samples]; what the fused step and the stack of the module path
// share, beside the cutting of a batch into panels.

constexpr int64_t kMostSamples = 32;

// Samples a panel: as few panels as possible, about equally full. All panels of a batch have the same V.
WB_INLINE int64_t panel_samples(int64_t batch) {
    const int64_t panels = (batch + kMostSamples - 1) / kMostSamples;
    return panels > 0 ? (batch + panels - 1) / panels : 0;
}

// Calls function(std::integral_constant<int, V>) with the V that `samples` need.
template <class Function>
WB_INLINE void with_vectors(int64_t samples, Function&& function) {
    if (samples <= 8) function(std::integral_constant<int, 1>{});
    else if (samples <= 16) function(std::integral_constant<int, 2>{});
    else if (samples <= 24) function(std::integral_constant<int, 3>{});
    else function(std::integral_constant<int, 4>{});
}

struct PanelLayer {
    int64_t n_in, n_out;
    int32_t activation;
    const float* weight;     // dense; null: sparse, and `part` holds the weights
    const float* bias;       // or null
    SparsePart part;
    float* weight_gradient;  // dense
    float* bias_gradient;    // or null
    float* output;           // a panel: what the layer gives
    float* delta;            // a panel: the gradient of that, and after the backward pass of what its function took
};

// `ranges` as in forward_sparse.
template <int V>
static void forward_layer(const PanelLayer& layer, const std::vector<Range>& ranges, const float* x) {
    start_outputs<V>(layer.bias, layer.n_out, layer.output);
    if (layer.weight) forward_dense<V>(layer.weight, layer.n_in, layer.n_out, x, layer.output);
    else forward_sparse<V>(layer.part, ranges, x, layer.output);
    activate(layer.activation, layer.output, layer.n_out * V * 8);
}

// Gradients of the parameters are added to, dx is overwritten unless it is null.
template <int V>
static void backward_layer(const PanelLayer& layer, const std::vector<Range>& ranges, const float* x, float* dx) {
    activate_backward(layer.activation, layer.output, layer.delta, layer.n_out * V * 8);
    if (layer.bias_gradient) backward_bias<V>(layer.n_out, layer.delta, layer.bias_gradient);
    if (layer.weight) backward_dense<V>(layer.weight, layer.n_in, layer.n_out, x, layer.delta, layer.weight_gradient, dx);
    else backward_sparse<V>(layer.part, ranges, x, layer.delta, dx);
}
