// The fused step against the written-out network in double, over random stacks, rules, batches and wirings.
#include <limits>

#include "network_reference.h"

// The same network in the arrays that the kernel works on.
struct NativeParameter {
    std::vector<float> data, moment1, moment2, moment2_max;

    wb_parameter view(double weight_decay, bool moments) {
        if (data.empty()) return wb_parameter{};
        return wb_parameter{data.data(), moments ? moment1.data() : nullptr, moment2.data(),
                            moment2_max.empty() ? nullptr : moment2_max.data(), weight_decay, 0};
    }
};

static NativeParameter native(const std::vector<Trained>& values, bool amsgrad) {
    NativeParameter p;
    for (const Trained& w : values) p.data.push_back(static_cast<float>(w.state.theta));
    p.moment1.assign(p.data.size(), 0);
    p.moment2.assign(p.data.size(), 0);
    if (amsgrad) p.moment2_max.assign(p.data.size(), 0);
    return p;
}

struct NativeWiring {
    NativeParameter theta;
    std::vector<int32_t> born;
    Index index;
};

static std::vector<Trained> random_values(Random& random, int64_t n, double scale) {
    std::vector<Trained> values(static_cast<size_t>(n));
    for (Trained& w : values) w.state.theta = static_cast<float>(scale * random.signed_uniform());
    return values;
}

static ReferenceNetwork random_network(Random& random) {
    ReferenceNetwork net;
    const int64_t depth = 1 + random.below(4);
    const bool shared = random.below(2) == 0;  // one wiring over all sparse layers
    int64_t width = 1 + random.below(random.below(2) ? 40 : 12);
    for (int64_t i = 0; i < depth; ++i) {
        ReferenceLayer layer;
        layer.n_in = width;
        layer.n_out = width = 1 + random.below(random.below(2) ? 30 : 10);
        layer.activation = static_cast<int>(random.below(4));
        if (random.below(4) == 0) {
            layer.weight = random_values(random, layer.n_in * layer.n_out, 0.5);
        } else {
            if (!shared || net.wirings.empty()) net.wirings.emplace_back();
            ReferenceWiring& wiring = net.wirings.back();
            layer.wiring = static_cast<int>(net.wirings.size()) - 1;
            layer.part = wiring.shape.layers();
            wiring.shape.n_in.push_back(layer.n_in);
            wiring.shape.n_out.push_back(layer.n_out);
        }
        if (random.below(2) == 0) layer.bias = random_values(random, layer.n_out, 0.3);
        layer.weight_decay = 0.1 * random.uniform();
        layer.bias_decay = random.below(2) ? 0 : 0.1;
        layer.dropout = random.below(3) ? 0 : 0.5 * random.uniform();
        layer.dropout_seed = random.next();
        layer.dropout_index = random.below(4);
        layer.dropout_calls = random.below(1000);
        net.layers.push_back(layer);
    }
    for (size_t i = 0; i < net.wirings.size(); ++i) {
        ReferenceWiring& wiring = net.wirings[i];
        wiring.seed = random.next() >> 1;
        wiring.index = static_cast<int>(i);
        wiring.bound = random.below(6) != 0;
        wiring.rewire_every = random.below(4);
        wiring.weight_decay = random.below(2) ? 0 : 0.1;
        const int64_t possible = wiring.shape.possible();
        const int64_t budget = random.below(5) == 0 ? possible : random.below(possible + 1);
        for (int64_t p : random_positions(random, possible, budget)) {
            Trained w;
            w.sign = sign_reference(wiring.seed, wiring.index, p);
            w.state.theta = static_cast<float>(random.uniform());
            wiring.connections[p] = w;
        }
        for (int64_t part = 0; part < wiring.shape.layers(); ++part) {
            wiring.shrink.push_back(random.below(2) ? 0 : 0.02 * random.uniform());
            wiring.noise_std.push_back(random.below(2) ? 0 : 0.05 * random.uniform());
            wiring.shares.push_back(0.1 + random.uniform());
        }
        if (random.below(2) == 0) wiring.shares.clear();
    }
    wb_rule& rule = net.rule;
    rule.kind = random.below(2) ? WB_SGD : WB_ADAM;
    rule.nesterov = random.below(2) == 0;
    rule.decoupled = random.below(2) == 0;
    rule.momentum = 0.9 * random.uniform();
    rule.dampening = rule.nesterov ? 0 : 0.5 * random.uniform();
    rule.beta1 = 0.9;
    rule.beta2 = 0.99;
    rule.eps = 1e-2;  // tiny gradients of either sign must not become steps of either sign
    net.has_momentum = random.below(2) == 0;
    net.amsgrad = rule.kind == WB_ADAM && random.below(3) == 0;
    net.ages = random.below(3) != 0;
    net.loss_kind = static_cast<int>(random.below(3));
    return net;
}

struct Data {
    int64_t samples, n_in, n_out;
    std::vector<float> floats, targets;
    std::vector<uint8_t> bytes;
    std::vector<int64_t> labels, order, batch;
    float scale, shift;
};

static Data random_data(Random& random, const ReferenceNetwork& net, int64_t steps) {
    Data data{50, net.layers.front().n_in, net.layers.back().n_out, {}, {}, {}, {}, {}, {}, 1, 0};
    for (int64_t i = 0; i < data.samples * data.n_in; ++i) {
        const bool zero = i % data.n_in / 8 % 2 == 0 && random.below(10) != 0;  // blocks of zeros, as in images
        data.floats.push_back(zero ? 0.0f : static_cast<float>(random.signed_uniform()));
        data.bytes.push_back(zero ? 0 : static_cast<uint8_t>(random.below(256)));
    }
    for (int64_t i = 0; i < data.samples; ++i) data.labels.push_back(random.below(data.n_out));
    for (int64_t i = 0; i < data.samples * data.n_out; ++i) data.targets.push_back(static_cast<float>(random.uniform()));
    const int64_t batch = 1 + random.below(random.below(3) ? 20 : 100);
    for (int64_t s = 0; s < steps; ++s) data.batch.push_back(s + 1 < steps ? batch : 1 + random.below(batch));
    for (int64_t b : data.batch)
        for (int64_t i = 0; i < b; ++i) data.order.push_back(random.below(data.samples));
    return data;
}

static void compare_values(const std::vector<Trained>& expected, const NativeParameter& got) {
    for (size_t i = 0; i < expected.size(); ++i) CHECK_CLOSE(got.data[i], expected[i].state.theta, 1e-4);
}

// True if the round was compared; false if a death was too close to call.
static bool compare(Random& random, bool overflow) {
    ReferenceNetwork net = random_network(random);
    const int64_t steps = 4, first_step = 1 + random.below(3);
    Data data = random_data(random, net, steps);
    const bool bytes = random.below(2) == 0;
    if (bytes) data.scale = 1.0f / 255, data.shift = random.below(2) ? 0.0f : -0.3f;
    const bool moments = net.rule.kind == WB_ADAM || net.has_momentum;
    // A network that is already running has no fresh momentum; Adam's dense steps count from the same number.
    const bool fresh = first_step == 1;

    std::vector<NativeParameter> weights, biases;
    std::vector<NativeWiring> wirings;
    for (const ReferenceLayer& layer : net.layers) {
        weights.push_back(native(layer.weight, net.amsgrad));
        biases.push_back(native(layer.bias, net.amsgrad));
    }
    for (const ReferenceWiring& wiring : net.wirings) {
        std::vector<Trained> values;
        std::vector<int64_t> positions;
        for (const auto& item : wiring.connections) {
            positions.push_back(item.first);
            values.push_back(item.second);
        }
        wirings.push_back(NativeWiring{native(values, net.amsgrad), std::vector<int32_t>(values.size(), 0),
                                       build_index(wiring.shape, positions, wiring.seed, wiring.index)});
    }
    std::vector<wb_fused_layer> layers;
    for (size_t i = 0; i < net.layers.size(); ++i) {
        const ReferenceLayer& layer = net.layers[i];
        wb_fused_layer spec{layer.n_in, layer.n_out, layer.activation, layer.wiring, layer.part,
                            weights[i].view(layer.weight_decay, moments), biases[i].view(layer.bias_decay, moments),
                            layer.dropout, layer.dropout_seed, layer.dropout_calls, layer.dropout_index};
        spec.weight.step = spec.bias.step = first_step - 1;
        layers.push_back(spec);
    }
    std::vector<wb_fused_wiring> specs;
    int64_t parts = 0;
    for (size_t i = 0; i < net.wirings.size(); ++i) {
        const ReferenceWiring& w = net.wirings[i];
        wb_fused_wiring spec{};
        spec.budget = static_cast<int64_t>(w.connections.size());
        spec.layers = w.shape.layers();
        spec.n_in = w.shape.n_in.data();
        spec.n_out = w.shape.n_out.data();
        spec.colptr = wirings[i].index.colptr.data();
        spec.packed_rows = wirings[i].index.packed_rows.data();
        spec.theta = wirings[i].theta.data.data();
        spec.moment1 = moments ? wirings[i].theta.moment1.data() : nullptr;
        spec.moment2 = wirings[i].theta.moment2.data();
        spec.moment2_max = net.amsgrad ? wirings[i].theta.moment2_max.data() : nullptr;
        spec.born = net.ages ? wirings[i].born.data() : nullptr;
        spec.shares = w.shares.empty() ? nullptr : w.shares.data();
        spec.shrink = w.shrink.data();
        spec.noise_std = w.noise_std.data();
        spec.rewire_every = w.rewire_every;
        spec.weight_decay = w.weight_decay;
        spec.clock = first_step - 1;
        spec.seed = w.seed;
        spec.index = w.index;
        spec.bound = w.bound;
        specs.push_back(spec);
        parts += spec.layers;
    }
    const std::vector<double> lr = {0.1, 0.05, 0.2, 0.1};
    std::vector<double> loss(static_cast<size_t>(steps), -1);
    std::vector<int64_t> born(static_cast<size_t>(steps * parts + 1), -1);
    wb_fused_run run{};
    run.steps = steps;
    run.first_step = first_step;
    run.n_layers = static_cast<int64_t>(layers.size());
    run.n_wirings = static_cast<int64_t>(specs.size());
    run.layers = layers.data();
    run.wirings = specs.data();
    run.rule = net.rule;
    run.rule.fresh = fresh;
    run.lr = lr.data();
    run.x = bytes ? static_cast<const void*>(data.bytes.data()) : data.floats.data();
    run.x_stride = data.n_in;
    run.x_is_bytes = bytes;
    run.loss_kind = net.loss_kind;
    run.scale = data.scale;
    run.shift = data.shift;
    run.labels = data.labels.data();
    run.targets = data.targets.data();
    run.target_stride = data.n_out;
    run.order = data.order.data();
    run.batch = data.batch.data();
    run.loss = loss.data();
    run.born = born.data();
    run.born_stride = parts;

    if (overflow) {  // a sample of the third step is not a number: two steps are taken, and nothing of the third
        run.x = data.floats.data();
        run.x_is_bytes = 0;
        run.scale = 1, run.shift = 0;
        const size_t third = static_cast<size_t>(data.batch[0] + data.batch[1]);
        for (size_t i = 0; i < data.order.size(); ++i) data.order[i] = i == third ? 7 : 1 + data.order[i] % 5;
        for (int64_t f = 0; f < data.n_in; ++f)
            data.floats[static_cast<size_t>(7 * data.n_in + f)] = std::numeric_limits<float>::quiet_NaN();
        int32_t status = -1;
        const int64_t done = wb_fused_steps_f32(&run, &status);
        // In a stack without a path from input to output only gradients can notice, or nothing.
        if (status != WB_LOSS_NOT_FINITE) {
            CHECK(status == WB_FINE ? done == steps : done == 3);
            return false;
        }
        CHECK(done == 2 && !std::isfinite(loss[2]) && std::isfinite(loss[1]) && loss[3] == -1);
        for (const NativeWiring& w : wirings)
            for (float value : w.theta.data) CHECK(std::isfinite(value));
        return true;
    }

    int32_t status = -1;
    CHECK(wb_fused_steps_f32(&run, &status) == steps);
    CHECK(status == WB_FINE);

    size_t at = 0;
    for (int64_t s = 0; s < steps; ++s) {
        net.zero_gradients();
        double expected = 0;
        const int64_t batch = data.batch[static_cast<size_t>(s)];
        for (int64_t b = 0; b < batch; ++b) {
            const int64_t sample = data.order[at++];
            std::vector<double> x;
            for (int64_t f = 0; f < data.n_in; ++f) {
                const size_t i = static_cast<size_t>(sample * data.n_in + f);
                const double raw = bytes ? static_cast<double>(data.bytes[i]) : static_cast<double>(data.floats[i]);
                x.push_back(raw * static_cast<double>(data.scale) + static_cast<double>(data.shift));
            }
            expected += net.sample(s, b, x, data.labels[static_cast<size_t>(sample)], data.targets.data() + sample * data.n_out, batch);
        }
        CHECK_CLOSE(loss[static_cast<size_t>(s)], expected, 1e-4);
        const std::vector<int64_t> newborns = net.update(lr[static_cast<size_t>(s)], first_step + s, fresh && s == 0);
        if (net.ambiguous) return false;
        for (int64_t i = 0; i < parts; ++i)
            CHECK(born[static_cast<size_t>(s * parts + i)] == newborns[static_cast<size_t>(i)]);
    }
    for (size_t i = 0; i < net.layers.size(); ++i) {
        compare_values(net.layers[i].weight, weights[i]);
        compare_values(net.layers[i].bias, biases[i]);
    }
    for (size_t i = 0; i < net.wirings.size(); ++i) {
        std::vector<int64_t> positions;
        std::vector<Trained> values;
        for (const auto& item : net.wirings[i].connections) {
            positions.push_back(item.first);
            values.push_back(item.second);
        }
        const Index right = build_index(net.wirings[i].shape, positions, net.wirings[i].seed, net.wirings[i].index);
        CHECK(wirings[i].index.colptr == right.colptr && wirings[i].index.packed_rows == right.packed_rows);
        compare_values(values, wirings[i].theta);
        for (size_t k = 0; k < values.size() && net.ages; ++k) CHECK(wirings[i].born[k] == values[k].born);
    }
    return true;
}

int main() {
    Random random(31);
    int compared = 0, stopped = 0;
    for (int round = 0; round < 1000; ++round) compared += compare(random, false);
    for (int round = 0; round < 200; ++round) stopped += compare(random, true);
    CHECK(compared > 600 && stopped > 50);
    std::printf("fused: ok (%s), %d networks compared, %d stopped\n", wb_isa(), compared, stopped);
}
