// Forward and backward of a run of sparse layers in one call each, for the module path: at small batches a step is
// mostly the overhead of its calls. One thread; the panels and kernels are those of the fused step.
#pragma once

#include "fused_input.inc.cpp"
#include "fused_layer.inc.cpp"
#include "guard.inc.cpp"
#include "transpose.inc.cpp"

namespace wb::WB_ISA {

// What a call needs beside its arguments; a thread keeps it. The backward pass most often follows its forward pass on
// the same thread, and then finds the transposed input and the columns still there: `ticket` says whose they are.
struct StackScratch {
    int64_t ticket = 0;
    std::vector<PanelLayer> layers;
    InputPanel input;
    std::vector<Range> lit, all;  // connections of the first layer whose input is not zero; all of a layer
};

class Stack {
public:
    Stack(const wb_stack_layer* layers, int64_t n_layers, const float* x, int64_t x_stride, int64_t batch, float* kept,
          bool backward)
        : x_(x), x_stride_(x_stride), batch_(batch), width_(panel_samples(batch)), lanes_((width_ + 7) / 8 * 8),
          scratch_(own()) {
        const int64_t n_in = layers[0].n_in;
        int64_t outputs = 0, columns = 0;
        for (int64_t i = 0; i < n_layers; ++i) {
            outputs += layers[i].n_out;
            if (is_thin(connections(layers[i]), layers[i].n_in, layers[i].n_out))
                columns += 2 * connections(layers[i]) + 8;
        }
        panel_size_ = outputs * lanes_;
        punch_ticket(kept + panel_size_ * ((batch + kMostSamples - 1) / kMostSamples), backward);
        float* space = static_cast<float*>(scratch(
            Scratch::stack, static_cast<size_t>(2 * round_up(n_in, 8) * lanes_ + panel_size_ + columns) * sizeof(float)));
        scratch_.input.panel = take(space, round_up(n_in, 8) * lanes_);
        scratch_.input.n_in = n_in;
        if (!known_) scratch_.input.vectors = 0;
        dx_ = take(space, round_up(n_in, 8) * lanes_);
        scratch_.layers.clear();
        for (int64_t i = 0; i < n_layers; ++i) {
            const wb_stack_layer& spec = layers[i];
            const int64_t first = spec.colptr[0], count = connections(spec);
            PanelLayer layer{spec.n_in, spec.n_out, spec.activation, nullptr, spec.bias, {}, nullptr, nullptr, kept,
                             take(space, spec.n_out * lanes_)};
            kept += spec.n_out * lanes_;
            layer.part = SparsePart{spec.n_in, spec.n_out, count, spec.colptr, spec.packed_rows + first,
                                    spec.theta + first, nullptr, 0, nullptr, nullptr};
            if (is_thin(count, spec.n_in, spec.n_out)) {
                int32_t* own_columns = reinterpret_cast<int32_t*>(take(space, count + 8));
                if (!known_) write_columns(spec.colptr, spec.n_in, own_columns);
                layer.part.columns = own_columns;
                layer.part.weights = take(space, count);
                prepare_weights(layer.part);
            }
            scratch_.layers.push_back(layer);
        }
    }

    void forward(float* y, int64_t y_stride) {
        each_panel([&](auto vectors, int64_t first, int64_t count) {
            constexpr int V = decltype(vectors)::value;
            gather<V>(first, count);
            const float* x = scratch_.input.panel;
            for (PanelLayer& layer : scratch_.layers) {
                forward_layer<V>(layer, ranges(layer, true), x);
                x = layer.output;
            }
            unpack<float, V * 32>(x, count, scratch_.layers.back().n_out, y + first * y_stride, y_stride);
        });
    }

    void backward(const float* dy, int64_t dy_stride, float* dx, int64_t dx_stride, float* const* gradients) {
        for (size_t i = 0; i < scratch_.layers.size(); ++i) {
            PanelLayer& layer = scratch_.layers[i];
            layer.part.gradient = gradients[i] + layer.part.colptr[0];
            layer.bias_gradient = gradients[scratch_.layers.size() + i];
            zero(layer.part.gradient, layer.part.connections);
            if (layer.bias_gradient) zero(layer.bias_gradient, layer.n_out);
        }
        each_panel([&](auto vectors, int64_t first, int64_t count) {
            constexpr int V = decltype(vectors)::value;
            std::vector<PanelLayer>& layers = scratch_.layers;
            gather<V>(first, count);
            pack<float, V * 32>(dy + first * dy_stride, dy_stride, count, layers.back().n_out, layers.back().delta);
            activate_backward(layers.back().activation, layers.back().output, layers.back().delta,
                              layers.back().n_out * V * 8);
            for (size_t i = layers.size(); i-- > 1;)
                backward_layer<V>(layers[i], ranges(layers[i], false), layers[i - 1].activation, layers[i - 1].output,
                                  layers[i - 1].delta);
            // Inputs that are zero have no gradient to give, but one to receive.
            backward_layer<V>(layers[0], ranges(layers[0], dx == nullptr), WB_IDENTITY, scratch_.input.panel,
                              dx ? dx_ : nullptr);
            if (dx) unpack<float, V * 32>(dx_, count, layers[0].n_in, dx + first * dx_stride, dx_stride);
        });
    }

private:
    static StackScratch& own() {
        static thread_local StackScratch scratch;
        return scratch;
    }
    static int64_t connections(const wb_stack_layer& layer) { return layer.colptr[layer.n_in] - layer.colptr[0]; }
    static float* take(float*& space, int64_t count) { return std::exchange(space, space + count); }
    static void zero(float* values, int64_t count) { std::fill(values, values + count, 0.0f); }

    // Calls function(V, first sample, samples) for each panel, with the outputs where that panel keeps them.
    template <class Function>
    void each_panel(Function&& function) {
        if (batch_ <= 0) return;
        with_vectors(width_, [&](auto vectors) {
            for (int64_t first = 0; first < batch_; first += width_) {
                function(vectors, first, std::min(width_, batch_ - first));
                for (PanelLayer& layer : scratch_.layers) layer.output += panel_size_;
            }
        });
    }

    // A forward pass writes its number behind what it keeps. The scratch memory holds one panel, the last.
    void punch_ticket(float* kept, bool backward) {
        static std::atomic<int64_t> last{0};
        int64_t ticket = 0;
        if (backward) std::memcpy(&ticket, kept, sizeof ticket);
        known_ = backward && ticket == scratch_.ticket && batch_ <= kMostSamples;
        if (known_) return;
        scratch_.ticket = ticket = backward ? 0 : ++last;
        if (!backward) std::memcpy(kept, &ticket, sizeof ticket);
    }

    template <int V>
    void gather(int64_t first, int64_t count) {
        if (known_) return;
        int64_t samples[kMostSamples];
        for (int64_t b = 0; b < count; ++b) samples[b] = first + b;
        const SparsePart& part = scratch_.layers[0].part;
        gather_samples<V>(x_, x_stride_, 1.0f, 0.0f, samples, count, scratch_.input, part.columns ? &part : nullptr,
                          scratch_.lit);
    }

    const std::vector<Range>& ranges(const PanelLayer& layer, bool lit) {
        if (lit && &layer == &scratch_.layers[0]) return scratch_.lit;
        scratch_.all.assign(1, Range{0, layer.part.connections});
        return scratch_.all;
    }

    const float* x_;
    int64_t x_stride_, batch_, width_, lanes_, panel_size_ = 0;
    float* dx_ = nullptr;
    bool known_ = false;  // the input panel and the columns are there already
    StackScratch& scratch_;
};

// A layer of a stack points at the arrays of its whole wiring.
static int stack_fault(const wb_stack_layer* layers, int64_t n_layers, bool forward) {
    for (int64_t i = 0; i < n_layers; ++i) {
        const wb_stack_layer& spec = layers[i];
        const int64_t first = spec.colptr[0], last = spec.colptr[spec.n_in];
        if (first < 0 || last < first || last > spec.budget) return WB_BAD_INDEX;
        const Layer<float> layer{spec.n_in, spec.n_out, spec.colptr, spec.packed_rows + first, spec.theta + first};
        if (const int fault = layer_fault(layer, last - first, forward && spec.bound)) return fault;
    }
    return WB_FINE;
}

static int entry_stack_forward_f32(const wb_stack_layer* layers, int64_t n_layers, const float* x, int64_t x_stride,
                             int64_t batch, float* kept, float* y, int64_t y_stride) {
    if (const int fault = stack_fault(layers, n_layers, true)) return fault;
    Stack(layers, n_layers, x, x_stride, batch, kept, false).forward(y, y_stride);
    return WB_FINE;
}

static int entry_stack_backward_f32(const wb_stack_layer* layers, int64_t n_layers, const float* x, int64_t x_stride,
                              int64_t batch, const float* kept, const float* dy, int64_t dy_stride, float* dx,
                              int64_t dx_stride, float* const* gradients) {
    if (const int fault = stack_fault(layers, n_layers, false)) return fault;
    // The backward pass only reads what was kept.
    Stack(layers, n_layers, x, x_stride, batch, const_cast<float*>(kept), true)
        .backward(dy, dy_stride, dx, dx_stride, gradients);
    return WB_FINE;
}

}  // namespace wb::WB_ISA
