// Whole training steps of a plain stack of layers in one call: forward, loss, backward, update, rewiring. One thread.
//
// A batch is cut into panels of up to 32 samples, [feature][V * 8 samples]; gradients add up over the panels. The
// update and the rewiring are those of update.inc.cpp and rewire.inc.cpp, so they draw the same numbers.
#pragma once

#include "fused_dropout.inc.cpp"
#include "fused_input.inc.cpp"
#include "fused_layer.inc.cpp"
#include "fused_loss.inc.cpp"
#include "fused_rows.inc.cpp"
#include "rewire.inc.cpp"
#include "update.inc.cpp"

namespace wb::WB_ISA {

// Floats at the start of a cache line, zero at first.
class Floats {
public:
    explicit Floats(int64_t count)
        : data_(static_cast<float*>(::operator new(bytes(count), std::align_val_t{64}))) {
        std::memset(data_, 0, bytes(count));
    }
    ~Floats() { ::operator delete(data_, std::align_val_t{64}); }
    Floats(Floats&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
    Floats(const Floats&) = delete;
    Floats& operator=(const Floats&) = delete;
    float* get() const { return data_; }

private:
    static size_t bytes(int64_t count) { return static_cast<size_t>(count + 8) * sizeof(float); }
    float* data_;
};

struct FusedLayer {
    const wb_fused_layer* spec;
    Floats output, delta;  // panels: what the layer gives, and the gradient of what went into its function
    Floats weight_gradient, bias_gradient;
    std::vector<Range> ranges;
    Dropout dropout;
    Floats dropped;  // a panel: what is left of the outputs of the layer before
};

struct FusedWiring {
    const wb_fused_wiring* spec;
    Floats gradient;
    std::vector<int32_t> columns;  // of each connection; empty if no layer is thin
    std::vector<float> weights;    // with signs, likewise
    std::vector<uint8_t> is_thin;
    std::vector<int64_t> first_column;
    std::vector<wb_carried> carried;
    Dead dead;
    RewireScratch scratch;
};

class FusedStack {
public:
    explicit FusedStack(const wb_fused_run& run) : run_(run), rows_(run.row_starts, run.row_columns, run.row_values) {
        int64_t batch = 0;
        for (int64_t s = 0; s < run.steps; ++s) batch = std::max(batch, run.batch[s]);
        const int64_t width = std::min<int64_t>((batch + 7) / 8 * 8, 32);
        for (int64_t i = 0; i < run.n_wirings; ++i)
            add_wiring(run.wirings[i], rows_.given() && run.layers[0].wiring == i ? run.layers[0].layer_id : -1);
        for (int64_t i = 0; i < run.n_layers; ++i) {
            const wb_fused_layer& spec = run.layers[i];
            layers_.push_back(FusedLayer{&spec, Floats(spec.n_out * width), Floats(spec.n_out * width),
                                         Floats(spec.wiring < 0 ? spec.n_in * spec.n_out : 0), Floats(spec.n_out), {},
                                         Dropout(spec, batch), Floats(i > 0 && spec.dropout > 0.0 ? spec.n_in * width : 0)});
        }
        input_values_.emplace_back(rows_.given() ? 0 : (run.layers[0].n_in + 7) / 8 * 8 * width);
        input_.panel = input_values_[0].get();
        input_.n_in = run.layers[0].n_in;
    }

    // Steps done before one failed, or all of them.
    int64_t train(int32_t* status) {
        const int64_t* samples = run_.order;
        *status = WB_FINE;
        for (int64_t s = 0; s < run_.steps; ++s) {
            const int64_t batch = run_.batch[s];
            if (s + 1 < run_.steps) prefetch(samples + batch, run_.batch[s + 1]);
            const double loss = gradients(s, samples, batch);
            run_.loss[s] = loss;
            if (!(std::fabs(loss) <= std::numeric_limits<double>::max())) {
                *status = WB_LOSS_NOT_FINITE;
                return s;
            }
            step_samples_ = samples, step_batch_ = batch;
            if (update(s)) {
                *status = WB_THETA_NOT_FINITE;
                return s + 1;
            }
            if (run_.active) run_.active[s] = active();
            samples += batch;
        }
        return run_.steps;
    }

private:
    // `on_rows`: the layer that takes sparse rows, or -1; its connections are found by their columns.
    void add_wiring(const wb_fused_wiring& spec, int64_t on_rows) {
        FusedWiring wiring{&spec, Floats(spec.budget), {}, {}, {}, {}, {}, {}, {}};
        bool any_thin = false;
        int64_t column = 0;
        for (int64_t i = 0; i < spec.layers; ++i) {
            const int64_t end = column + spec.n_in[i];
            const bool thin = i != on_rows && end < INT32_MAX &&
                              is_thin(spec.colptr[end] - spec.colptr[column], spec.n_in[i], spec.n_out[i]);
            wiring.is_thin.push_back(thin);
            wiring.first_column.push_back(column);
            any_thin |= thin;
            column = end;
        }
        if (any_thin) {
            wiring.columns.resize(static_cast<size_t>(spec.budget) + 8);
            write_columns(spec.colptr, column, wiring.columns.data());
            wiring.weights.resize(static_cast<size_t>(spec.budget));
        }
        for (float* array : {spec.theta, spec.moment1, spec.moment2, spec.moment2_max})
            if (array) wiring.carried.push_back(wb_carried{array, 4, 0});
        wirings_.push_back(std::move(wiring));
    }

    SparsePart part_of(const wb_fused_layer& layer) {
        FusedWiring& wiring = wirings_[static_cast<size_t>(layer.wiring)];
        const wb_fused_wiring& spec = *wiring.spec;
        const size_t id = static_cast<size_t>(layer.layer_id);
        const int64_t column = wiring.first_column[id], *colptr = spec.colptr + column, first = colptr[0];
        const bool thin = wiring.is_thin[id];
        return SparsePart{layer.n_in, layer.n_out, colptr[layer.n_in] - first, colptr, spec.packed_rows + first,
                          spec.theta + first, thin ? wiring.columns.data() + first : nullptr,
                          static_cast<int32_t>(column), thin ? wiring.weights.data() + first : nullptr,
                          wiring.gradient.get() + first};
    }

    PanelLayer view_of(FusedLayer& layer) {
        const wb_fused_layer& spec = *layer.spec;
        return PanelLayer{spec.n_in, spec.n_out, spec.activation, spec.wiring < 0 ? spec.weight.data : nullptr,
                          spec.bias.data, spec.wiring < 0 ? SparsePart{} : part_of(spec), layer.weight_gradient.get(),
                          spec.bias.data ? layer.bias_gradient.get() : nullptr, layer.output.get(), layer.delta.get()};
    }

    void prefetch(const int64_t* samples, int64_t count) const {
        const int64_t size = run_.x_is_bytes ? 1 : 4;
        if (rows_.given()) rows_.prefetch(samples, count);
        else prefetch_samples(static_cast<const char*>(run_.x), run_.x_stride * size, input_.n_in * size, samples, count);
        if (run_.loss_kind == WB_CROSS_ENTROPY)
            for (int64_t b = 0; b < count; ++b) __builtin_prefetch(run_.labels + samples[b]);
    }

    // Leaves the gradients of one batch in place and returns its loss.
    double gradients(int64_t s, const int64_t* samples, int64_t batch) {
        for (FusedWiring& wiring : wirings_) zero(wiring.gradient, wiring.spec->budget);
        for (FusedLayer& layer : layers_) {
            if (layer.spec->wiring < 0) zero(layer.weight_gradient, layer.spec->n_in * layer.spec->n_out);
            if (layer.spec->bias.data) zero(layer.bias_gradient, layer.spec->n_out);
        }
        const int64_t width = panel_samples(batch);
        double loss = 0;
        for (FusedLayer& layer : layers_) {
            prepare(*layer.spec);
            if (layer.dropout.is_on()) layer.dropout.draw(s, batch);
        }
        with_vectors(width, [&](auto vectors) {
            constexpr int V = decltype(vectors)::value;
            for (int64_t first = 0; first < batch; first += width)
                loss += panel<V>(first, samples + first, std::min(width, batch - first), batch);
        });
        if (const wb_fused_layer& first = run_.layers[0]; rows_.given() && first.wiring >= 0) {
            const wb_fused_wiring& wiring = run_.wirings[first.wiring];
            if (wiring.lazy && wiring.lazy[first.layer_id])
                rows_.mark_judged(view_of(layers_[0]), run_.rule.maximize, samples, batch);
        }
        return loss / static_cast<double>(batch);
    }

    static void zero(Floats& values, int64_t count) {
        std::memset(values.get(), 0, static_cast<size_t>(count) * sizeof(float));
    }

    void prepare(const wb_fused_layer& layer) {
        if (layer.wiring < 0) return;
        const SparsePart part = part_of(layer);
        if (part.columns) prepare_weights(part);
    }

    // Forward and backward of one panel, which begins with sample `first` of the batch; returns the sum of its losses.
    template <int V>
    double panel(int64_t first, const int64_t* samples, int64_t count, int64_t batch) {
        if (!rows_.given()) {
            gather<V>(samples, count);
            if (layers_[0].dropout.is_on()) layers_[0].dropout.apply<V>(first, input_.panel, input_.panel);
        }
        const float* x = input_.panel;
        for (FusedLayer& layer : layers_) {
            const PanelLayer view = view_of(layer);
            if (&layer == &layers_[0] && rows_.given()) {
                rows_.meet(view, run_.scale, samples, count);
                rows_.forward<V>(view);
                x = view.output;
                continue;
            }
            if (&layer != &layers_[0]) {
                layer.ranges.assign(1, Range{0, view.part.connections});
                if (layer.dropout.is_on()) {
                    layer.dropout.apply<V>(first, x, layer.dropped.get());
                    x = layer.dropped.get();
                }
            }
            forward_layer<V>(view, layer.ranges, x);
            x = view.output;
        }
        const FusedLayer& last = layers_.back();
        const int64_t n_out = last.spec->n_out;
        const double loss = loss_of<V>(x, n_out, samples, count, batch, last.delta.get());
        activate_backward(last.spec->activation, x, last.delta.get(), n_out * V * 8);
        for (size_t i = layers_.size(); i-- > 1;) {
            FusedLayer &layer = layers_[i], &before = layers_[i - 1];
            float* delta = before.delta.get();
            if (!layer.dropout.is_on()) {
                backward_layer<V>(view_of(layer), layer.ranges, before.spec->activation, before.output.get(), delta);
                continue;
            }
            backward_layer<V>(view_of(layer), layer.ranges, WB_IDENTITY, layer.dropped.get(), delta);
            layer.dropout.apply<V>(first, delta, delta);
            activate_backward(before.spec->activation, before.output.get(), delta, before.spec->n_out * V * 8);
        }
        if (rows_.given()) rows_.backward<V>(view_of(layers_[0]));
        else backward_layer<V>(view_of(layers_[0]), layers_[0].ranges, WB_IDENTITY, input_.panel, nullptr);
        return loss;
    }

    template <int V>
    double loss_of(const float* y, int64_t n_out, const int64_t* samples, int64_t count, int64_t batch, float* delta) {
        if (run_.loss_kind == WB_CROSS_ENTROPY)
            return cross_entropy<V>(y, n_out, samples, count, run_.labels, batch, delta);
        const auto loss = run_.loss_kind == WB_MEAN_SQUARE ? mean_square<V> : soft_cross_entropy<V>;
        return loss(y, n_out, samples, count, run_.targets, run_.target_stride, batch, delta);
    }

    template <int V>
    void gather(const int64_t* samples, int64_t count) {
        const wb_fused_layer& first = run_.layers[0];
        SparsePart part{};
        if (first.wiring >= 0) part = part_of(first);
        const SparsePart* thin = part.columns ? &part : nullptr;
        std::vector<Range>& ranges = layers_[0].ranges;
        if (run_.x_is_bytes)
            gather_samples<V>(static_cast<const uint8_t*>(run_.x), run_.x_stride, run_.scale, run_.shift, samples, count,
                              input_, thin, ranges);
        else
            gather_samples<V>(static_cast<const float*>(run_.x), run_.x_stride, run_.scale, run_.shift, samples, count,
                              input_, thin, ranges);
    }

    // True if a theta or weight is not finite afterwards.
    bool update(int64_t s) {
        wb_rule rule = run_.rule;
        rule.lr = run_.lr[s];
        rule.fresh = run_.rule.fresh && s == 0;
        bool not_finite = false;
        int64_t* born = run_.born ? run_.born + s * run_.born_stride : nullptr;
        for (FusedWiring& wiring : wirings_) {
            not_finite |= update_wiring(wiring, rule, s, born);
            if (born) born += wiring.spec->layers;
        }
        for (FusedLayer& layer : layers_) {
            const wb_fused_layer& spec = *layer.spec;
            if (spec.wiring < 0)
                not_finite |= update_parameter(rule, spec.weight, layer.weight_gradient.get(), spec.n_in * spec.n_out,
                                               spec.weight.step + s + 1);
            if (spec.bias.data)
                not_finite |=
                    update_parameter(rule, spec.bias, layer.bias_gradient.get(), spec.n_out, spec.bias.step + s + 1);
        }
        return not_finite;
    }

    bool update_wiring(FusedWiring& wiring, wb_rule rule, int64_t s, int64_t* born) {
        const wb_fused_wiring& spec = *wiring.spec;
        rule.step = run_.first_step + s;
        rule.clock = spec.clock + s + 1;
        rule.seed = spec.seed;
        rule.stream = uint32_t{WB_STREAM_NOISE} | static_cast<uint32_t>(spec.index) << 8;
        rule.weight_decay = spec.weight_decay;
        rule.bound = spec.bound;
        rule.clamp = spec.rewire_every <= 0 || rule.step % spec.rewire_every != 0;
        const UpdateArrays<float> arrays{spec.theta,   wiring.gradient.get(), spec.moment1,
                                         spec.moment2, spec.moment2_max,      spec.born};
        const BiasCorrection<float>& table = bias_correction<float>(rule);
        wiring.dead.clear();
        bool not_finite = false;
        for (int64_t i = 0; i < spec.layers; ++i) {
            const int64_t column = wiring.first_column[static_cast<size_t>(i)], drift = s * spec.drift_stride + i;
            wb_rule own = rule;
            if (spec.lr_factor) own.lr *= spec.lr_factor[i];
            if (spec.decay_factor) own.weight_decay *= spec.decay_factor[i];
            const Drift rates{spec.shrink ? spec.shrink[drift] : 0.0, spec.noise_std ? spec.noise_std[drift] : 0.0,
                              spec.second_moment ? spec.second_moment[i] : 0.0, spec.lazy && spec.lazy[i]};
            const int64_t from = spec.colptr[column], to = spec.colptr[column + spec.n_in[i]];
            if (run_.judged && rates.lazy && takes_rows(spec) && i == run_.layers[0].layer_id) {
                int64_t judged = 0;
                for (int64_t k = from; k < to; ++k) judged += wiring.gradient.get()[k] != 0.0f;
                run_.judged[s] = judged;
            }
            if (rates.lazy && spec.born)  // who stands still grows no older
                for (int64_t k = from; k < to; ++k) spec.born[k] += wiring.gradient.get()[k] == 0.0f;
            not_finite |= update_range<float>(own, arrays, table, from, to, rates, wiring.dead);
        }
        std::vector<int64_t>& counts = counts_;
        counts.assign(static_cast<size_t>(2 * spec.layers), 0);
        if (wiring.dead.count > 0 && !not_finite) {
            if (spec.born) wiring.carried.push_back(wb_carried{spec.born, 4, rule.clock});
            const int64_t *open_columns = nullptr, *open_counts = nullptr;
            if (takes_rows(spec) && spec.lazy && spec.lazy[run_.layers[0].layer_id]) {
                // Newborns of that layer come to columns that are present in this step.
                const std::vector<int64_t>& present = rows_.present(step_samples_, step_batch_);
                open_counts_.assign(static_cast<size_t>(spec.layers), -1);
                open_counts_[static_cast<size_t>(run_.layers[0].layer_id)] = static_cast<int64_t>(present.size());
                open_columns = present.data(), open_counts = open_counts_.data();
            }
            const RewireTask task{spec.budget, spec.layers, spec.n_in, spec.n_out, spec.colptr, spec.packed_rows,
                                  wiring.carried.data(), static_cast<int64_t>(wiring.carried.size()),
                                  wiring.columns.empty() ? nullptr : wiring.columns.data(), spec.seed, spec.index,
                                  rule.step, spec.shares, most_listed(spec.budget), open_columns,
                                  open_counts};
            rewire_wiring(task, wiring.dead.indices.data(), wiring.dead.count, counts.data(),
                          counts.data() + spec.layers, 1, wiring.scratch);
            if (spec.born) wiring.carried.pop_back();
        }
        if (born) std::copy(counts.begin(), counts.begin() + spec.layers, born);
        return not_finite;
    }

    // Whether a layer of this wiring is given sparse rows.
    bool takes_rows(const wb_fused_wiring& spec) const {
        const int32_t first = run_.layers[0].wiring;
        return rows_.given() && first >= 0 && &run_.wirings[first] == &spec;
    }

    // Connections that are active: with theta >= 0, where it is bound to its sign.
    int64_t active() const {
        int64_t count = 0;
        for (const FusedWiring& wiring : wirings_) {
            const float* theta = wiring.spec->theta;
            const bool bound = wiring.spec->bound;
            for (int64_t k = 0; k < wiring.spec->budget; ++k) count += !bound || theta[k] >= 0.0f;
        }
        return count;
    }

    const wb_fused_run& run_;
    std::vector<FusedWiring> wirings_;
    std::vector<FusedLayer> layers_;
    std::vector<Floats> input_values_;
    InputPanel input_;
    SparseRows rows_;
    std::vector<int64_t> counts_, open_counts_;
    const int64_t* step_samples_ = nullptr;  // of the step that is taken now
    int64_t step_batch_ = 0;
};

static int64_t entry_fused_steps_f32(const wb_fused_run* run, int32_t* status) {
    for (int64_t i = 0; i < run->n_wirings; ++i) {
        const wb_fused_wiring& w = run->wirings[i];
        if (!entry_wiring_is_good(w.budget, w.layers, w.n_in, w.n_out, w.colptr, w.packed_rows)) return WB_BAD_INDEX;
    }
    return FusedStack(*run).train(status);
}

}  // namespace wb::WB_ISA
