// A stack of layers trained step by step in double, everything written out: the reference of the fused step.
#pragma once

#include <cmath>
#include <map>
#include <vector>

#include "update_reference.h"
#include "wiring_reference.h"

// One trained number with its optimiser state, and for a connection its sign and step of birth.
struct Trained {
    ConnectionState state{};
    double gradient = 0;
    int sign = 1;
    int64_t born = 0;
};

struct ReferenceWiring {
    Shape shape;
    std::map<int64_t, Trained> connections;  // by position in the wiring
    uint64_t seed = 0;
    int index = 0;
    bool bound = true;
    int64_t rewire_every = 1;
    double weight_decay = 0;
    std::vector<double> shares, shrink, noise_std;  // shares empty: uniform

    int64_t start(int64_t part) const {
        int64_t sum = 0;
        for (int64_t i = 0; i < part; ++i) sum += shape.size(i);
        return sum;
    }
};

struct ReferenceLayer {
    int64_t n_in = 0, n_out = 0;
    int activation = WB_IDENTITY, wiring = -1;
    int64_t part = 0;
    std::vector<Trained> weight, bias;  // dense [n_out][n_in]; bias may be empty
    double weight_decay = 0, bias_decay = 0;
    double dropout = 0;
    uint64_t dropout_seed = 0;
    int64_t dropout_calls = 0, dropout_index = 0;

    // What a feature of a sample is multiplied by in a step that counts from the first of the run.
    double factor(int64_t step, int64_t batch, int64_t sample, int64_t feature) const {
        if (dropout == 0) return 1;
        const int64_t half = feature * ((batch + 7) / 8 * 8) + sample;
        const uint32_t stream = 12u | static_cast<uint32_t>(dropout_index) << 8;
        const uint32_t word = word_reference(dropout_seed, stream, static_cast<uint64_t>(dropout_calls + step), half / 2);
        const uint32_t drawn = half % 2 ? word >> 16 : word & 0xffff;
        return drawn < static_cast<uint32_t>(std::lround(dropout * 65536)) ? 0 : 1 / (1 - dropout);
    }
};

struct ReferenceNetwork {
    std::vector<ReferenceWiring> wirings;
    std::vector<ReferenceLayer> layers;
    wb_rule rule{};
    bool has_momentum = false, amsgrad = false, ages = false;
    int loss_kind = WB_CROSS_ENTROPY;
    bool ambiguous = false;  // a theta came so close to 0 that float and double may disagree on its death

    // Calls function(trained, row, column) for every weight of a layer.
    template <class Function>
    void for_weights(ReferenceLayer& layer, Function&& function) {
        if (layer.wiring < 0) {
            for (size_t i = 0; i < layer.weight.size(); ++i)
                function(layer.weight[i], static_cast<int64_t>(i) / layer.n_in, static_cast<int64_t>(i) % layer.n_in);
            return;
        }
        ReferenceWiring& wiring = wirings[static_cast<size_t>(layer.wiring)];
        const int64_t start = wiring.start(layer.part), end = start + layer.n_in * layer.n_out;
        for (auto it = wiring.connections.lower_bound(start); it != wiring.connections.end() && it->first < end; ++it)
            function(it->second, (it->first - start) % layer.n_out, (it->first - start) / layer.n_out);
    }

    static double activate(int kind, double z) {
        if (kind == WB_RELU) return z > 0 ? z : 0;
        if (kind == WB_TANH) return std::tanh(z);
        if (kind == WB_SIGMOID) return 1 / (1 + std::exp(-z));
        return z;
    }
    static double slope(int kind, double y) {
        if (kind == WB_RELU) return y > 0 ? 1 : 0;
        if (kind == WB_TANH) return 1 - y * y;
        if (kind == WB_SIGMOID) return y * (1 - y);
        return 1;
    }

    // Adds the share of sample `number` of a batch to all gradients and returns its share of the mean loss.
    double sample(int64_t step, int64_t number, const std::vector<double>& x, int64_t label, const float* target,
                  int64_t samples) {
        const double batch = static_cast<double>(samples);
        std::vector<std::vector<double>> outputs{x}, inputs;  // of each layer: what it gives, and what it sees
        for (ReferenceLayer& layer : layers) {
            inputs.push_back(outputs.back());
            for (int64_t f = 0; f < layer.n_in; ++f)
                inputs.back()[static_cast<size_t>(f)] *= layer.factor(step, samples, number, f);
            std::vector<double> y(static_cast<size_t>(layer.n_out), 0);
            for (size_t i = 0; i < layer.bias.size(); ++i) y[i] = layer.bias[i].state.theta;
            for_weights(layer, [&](Trained& w, int64_t row, int64_t column) {
                y[static_cast<size_t>(row)] += w.sign * w.state.theta * inputs.back()[static_cast<size_t>(column)];
            });
            for (double& value : y) value = activate(layer.activation, value);
            outputs.push_back(y);
        }
        const std::vector<double>& y = outputs.back();
        std::vector<double> dy(y.size());
        double loss = 0;
        if (loss_kind != WB_MEAN_SQUARE) {
            double top = y[0], sum = 0, total = 0;
            for (double value : y) top = std::fmax(top, value);
            for (double value : y) sum += std::exp(value - top);
            const auto wanted = [&](size_t j) {
                return loss_kind == WB_SOFT_CROSS_ENTROPY ? static_cast<double>(target[j]) : static_cast<int64_t>(j) == label ? 1.0 : 0.0;
            };
            for (size_t j = 0; j < y.size(); ++j) total += wanted(j);
            for (size_t j = 0; j < y.size(); ++j) {
                loss += wanted(j) * (std::log(sum) + top - y[j]) / batch;
                dy[j] = (std::exp(y[j] - top) / sum * total - wanted(j)) / batch;
            }
        } else {
            const double count = batch * static_cast<double>(y.size());
            for (size_t j = 0; j < y.size(); ++j) {
                const double difference = y[j] - static_cast<double>(target[j]);
                loss += difference * difference / count;
                dy[j] = 2 * difference / count;
            }
        }
        for (size_t i = layers.size(); i-- > 0;) {
            ReferenceLayer& layer = layers[i];
            std::vector<double> dx(static_cast<size_t>(layer.n_in), 0);
            for (size_t j = 0; j < dy.size(); ++j) dy[j] *= slope(layer.activation, outputs[i + 1][j]);
            for (size_t j = 0; j < layer.bias.size(); ++j) layer.bias[j].gradient += dy[j];
            for_weights(layer, [&](Trained& w, int64_t row, int64_t column) {
                const size_t r = static_cast<size_t>(row), c = static_cast<size_t>(column);
                w.gradient += w.sign * inputs[i][c] * dy[r];
                dx[c] += w.sign * w.state.theta * dy[r];
            });
            for (int64_t f = 0; f < layer.n_in; ++f)
                dx[static_cast<size_t>(f)] *= layer.factor(step, samples, number, f);
            dy = dx;
        }
        return loss;
    }

    void zero_gradients() {
        for (ReferenceLayer& layer : layers) {
            for_weights(layer, [](Trained& w, int64_t, int64_t) { w.gradient = 0; });
            for (Trained& b : layer.bias) b.gradient = 0;
        }
    }

    // The update of step `step`; newborns of each layer of each wiring.
    std::vector<int64_t> update(double lr, int64_t step, bool fresh) {
        wb_rule now = rule;
        now.lr = lr;
        now.fresh = fresh;
        for (ReferenceLayer& layer : layers) {
            if (layer.wiring < 0) {
                now.weight_decay = layer.weight_decay;
                for (Trained& w : layer.weight) optimise(now, w, step);
            }
            now.weight_decay = layer.bias_decay;
            for (Trained& b : layer.bias) optimise(now, b, step);
        }
        std::vector<int64_t> born;
        for (ReferenceWiring& wiring : wirings) {
            now.weight_decay = wiring.weight_decay;
            for (int64_t count : update_wiring(wiring, now, step)) born.push_back(count);
        }
        return born;
    }

private:
    void optimise(const wb_rule& now, Trained& w, int64_t step) {
        optimise_reference(now, w.state, w.gradient, has_momentum, amsgrad,
                           static_cast<double>(ages ? step - w.born : step));
    }

    std::vector<int64_t> update_wiring(ReferenceWiring& wiring, const wb_rule& now, int64_t step) {
        const uint32_t stream = 2u | static_cast<uint32_t>(wiring.index) << 8;
        const bool rewires = wiring.rewire_every > 0 && step % wiring.rewire_every == 0;
        std::vector<int64_t> born(static_cast<size_t>(wiring.shape.layers()), 0), survivors;
        std::vector<int64_t> dead;
        int64_t k = 0;
        for (auto& item : wiring.connections) {
            Trained& w = item.second;
            optimise(now, w, step);
            if (wiring.bound) {
                const size_t part = part_of(wiring, item.first);
                w.state.theta -= wiring.shrink[part];
                if (wiring.noise_std[part] != 0)
                    w.state.theta += wiring.noise_std[part] *
                                     normal_reference(wiring.seed, stream, static_cast<uint64_t>(step), k);
                if (std::fabs(w.state.theta) < 1e-5) ambiguous = true;
                if (!rewires) w.state.theta = std::fmax(w.state.theta, 0);
                if (w.state.theta < 0) dead.push_back(item.first);
            }
            ++k;
        }
        for (int64_t p : dead) wiring.connections.erase(p);
        for (auto& item : wiring.connections) survivors.push_back(item.first);
        for (int64_t p : newborns_reference(wiring.shape, survivors, static_cast<int64_t>(dead.size()), wiring.seed,
                                            wiring.index, step, wiring.shares.empty() ? nullptr : &wiring.shares)) {
            Trained w;
            w.sign = sign_reference(wiring.seed, wiring.index, p);
            w.born = step;
            wiring.connections[p] = w;
            ++born[part_of(wiring, p)];
        }
        return born;
    }

    static size_t part_of(const ReferenceWiring& wiring, int64_t position) {
        int64_t part = 0;
        while (position >= wiring.start(part + 1)) ++part;
        return static_cast<size_t>(part);
    }
};
