// The first layer of the fused step on sparse rows: what a step costs is how often a nonzero meets a connection, not how
// many columns there are. No panel of the inputs is made; a nonzero goes straight to the sums of its sample.
#pragma once

#include "fused_layer.inc.cpp"

namespace wb::WB_ISA {

// A nonzero of the panel and the connections of its column, counted from the layer's first; in a dense layer, its column.
struct Meeting {
    int64_t begin, end;
    float value;
    int32_t lane;
};

class SparseRows {
public:
    SparseRows(const int64_t* starts, const int32_t* columns, const float* values)
        : starts_(starts), columns_(columns), values_(values) {}
    bool given() const { return starts_ != nullptr; }

    // Looks up the nonzeros of the samples of a panel, each multiplied by `scale`.
    void meet(const PanelLayer& layer, float scale, const int64_t* samples, int64_t count) {
        constexpr int64_t kAhead = 8;  // column pointers lie anywhere in memory
        const int64_t* colptr = layer.part.colptr;
        const int64_t first = layer.weight ? 0 : colptr[0];
        meetings_.clear();
        for (int64_t b = 0; b < count; ++b) {
            const int64_t end = starts_[samples[b] + 1];
            for (int64_t j = starts_[samples[b]]; j < end; ++j) {
                const int64_t column = columns_[j];
                const float value = scale * values_[j];
                if (value == 0.0f) continue;
                if (layer.weight) {
                    meetings_.push_back(Meeting{column, column, value, static_cast<int32_t>(b)});
                    continue;
                }
                if (j + kAhead < end) __builtin_prefetch(colptr + columns_[j + kAhead]);
                if (colptr[column] < colptr[column + 1])
                    meetings_.push_back(
                        Meeting{colptr[column] - first, colptr[column + 1] - first, value, static_cast<int32_t>(b)});
            }
        }
    }

    template <int V>
    void forward(const PanelLayer& layer) const {
        start_outputs<V>(layer.bias, layer.n_out, layer.output);
        float* __restrict y = layer.output;
        for (const Meeting& m : meetings_) {
            if (layer.weight) {
                for (int64_t row = 0; row < layer.n_out; ++row)
                    y[row * V * 8 + m.lane] += layer.weight[row * layer.n_in + m.begin] * m.value;
                continue;
            }
            const int32_t* __restrict packed_rows = layer.part.packed_rows;
            const float* __restrict theta = layer.part.theta;
            for (int64_t k = m.begin; k < m.end; ++k)
                y[row_of(packed_rows[k]) * V * 8 + m.lane] += with_sign(theta[k], packed_rows[k]) * m.value;
        }
        activate(layer.activation, layer.output, layer.n_out * V * 8);
    }

    // Gradients of the parameters are added to.
    template <int V>
    void backward(const PanelLayer& layer) const {
        if (layer.bias_gradient) backward_bias<V>(layer.n_out, layer.delta, layer.bias_gradient);
        const float* __restrict delta = layer.delta;
        for (const Meeting& m : meetings_) {
            if (layer.weight) {
                for (int64_t row = 0; row < layer.n_out; ++row)
                    layer.weight_gradient[row * layer.n_in + m.begin] += delta[row * V * 8 + m.lane] * m.value;
                continue;
            }
            const int32_t* __restrict packed_rows = layer.part.packed_rows;
            float* __restrict gradient = layer.part.gradient;
            for (int64_t k = m.begin; k < m.end; ++k)
                gradient[k] += with_sign(delta[row_of(packed_rows[k]) * V * 8 + m.lane], packed_rows[k]) * m.value;
        }
    }

    // Where an input is there and the gradient 0, as at a unit that is closed, makes it so small that it moves nothing, but says
    // that the connection was judged: upwards for theta, so that without a pull nobody dies of it. As methods/occurring.py.
    void mark_judged(const PanelLayer& layer, bool maximize, const int64_t* samples, int64_t count) const {
        const float judged = maximize ? 1e-30f : -1e-30f;
        const int64_t *colptr = layer.part.colptr, first = colptr[0];
        for (int64_t b = 0; b < count; ++b)
            for (int64_t j = starts_[samples[b]]; j < starts_[samples[b] + 1]; ++j) {
                if (values_[j] == 0.0f) continue;
                float *gradient = layer.part.gradient + colptr[columns_[j]] - first,
                      *end = layer.part.gradient + colptr[columns_[j] + 1] - first;
                for (; gradient < end; ++gradient) *gradient = *gradient == 0.0f ? judged : *gradient;
            }
    }

    // The columns that are not 0 in some of the samples, sorted.
    const std::vector<int64_t>& present(const int64_t* samples, int64_t count) {
        present_.clear();
        for (int64_t b = 0; b < count; ++b)
            for (int64_t j = starts_[samples[b]]; j < starts_[samples[b] + 1]; ++j)
                if (values_[j] != 0.0f) present_.push_back(columns_[j]);
        std::sort(present_.begin(), present_.end());
        present_.erase(std::unique(present_.begin(), present_.end()), present_.end());
        return present_;
    }

    // Asks for the rows of the next step.
    void prefetch(const int64_t* samples, int64_t count) const {
        constexpr int64_t kMostLines = 512;
        int64_t lines = 0;
        for (int64_t b = 0; b < count && lines < kMostLines; ++b)
            for (int64_t j = starts_[samples[b]]; j < starts_[samples[b] + 1]; j += 16, ++lines) {
                __builtin_prefetch(columns_ + j, 0, 2);
                __builtin_prefetch(values_ + j, 0, 2);
            }
    }

private:
    const int64_t* starts_;
    const int32_t* columns_;
    const float* values_;
    std::vector<Meeting> meetings_;
    std::vector<int64_t> present_;
};

}  // namespace wb::WB_ISA
