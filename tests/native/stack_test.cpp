// Stacks of sparse layers, forward and backward, against the same written out in double.
#include "network_reference.h"
#include "wirebound.h"

struct SparseStack {
    Shape shape;  // of the wiring; layer i of the stack is part parts[i] of it
    std::vector<size_t> parts;
    std::vector<int32_t> activations;
    std::vector<std::vector<float>> biases;  // empty: none
    Index index;
    std::vector<float> theta;
};

// A chain of layers over one wiring, in which a square layer may occur twice and a part may be left over.
static SparseStack random_stack(Random& random) {
    SparseStack stack;
    const int64_t depth = 1 + random.below(4);
    int64_t width = 1 + random.below(random.below(2) ? 70 : 12);
    for (int64_t i = 0; i < depth; ++i) {
        stack.shape.n_in.push_back(width);
        if (random.below(4) != 0) width = 1 + random.below(random.below(2) ? 40 : 10);
        stack.shape.n_out.push_back(width);
        stack.parts.push_back(static_cast<size_t>(i));
        if (stack.shape.n_in.back() == width) stack.parts.push_back(static_cast<size_t>(i));
    }
    if (random.below(2) == 0) {
        stack.shape.n_in.push_back(5);
        stack.shape.n_out.push_back(7);
    }
    const int64_t possible = stack.shape.possible();
    const int64_t budget = random.below(3) == 0 ? random.below(possible + 1) : random.below(possible / 8 + 1);
    stack.index = build_index(stack.shape, random_positions(random, possible, budget), random.next() >> 1, 0);
    for (int64_t k = 0; k < budget; ++k) stack.theta.push_back(static_cast<float>(random.uniform()));
    for (size_t part : stack.parts) {
        stack.activations.push_back(static_cast<int32_t>(random.below(4)));
        stack.biases.emplace_back();
        if (random.below(2) == 0)
            for (int64_t r = 0; r < stack.shape.n_out[part]; ++r)
                stack.biases.back().push_back(static_cast<float>(random.signed_uniform()));
    }
    return stack;
}

struct Gradients {
    std::vector<double> theta;
    std::vector<std::vector<double>> bias;
};

// One sample through the stack: its output, its dx, and its share of the gradients.
static void reference(const SparseStack& stack, const float* x, const float* dy, std::vector<double>& y,
                      std::vector<double>& dx, Gradients& gradients) {
    const size_t depth = stack.parts.size();
    std::vector<std::vector<double>> outputs(1, std::vector<double>(x, x + stack.shape.n_in[0]));
    const auto for_weights = [&](size_t layer, auto&& function) {
        const size_t part = stack.parts[layer];
        size_t column = 0;
        for (size_t i = 0; i < part; ++i) column += static_cast<size_t>(stack.shape.n_in[i]);
        for (size_t c = 0; c < static_cast<size_t>(stack.shape.n_in[part]); ++c) {
            for (int64_t k = stack.index.colptr[column + c]; k < stack.index.colptr[column + c + 1]; ++k) {
                const int32_t packed_rows = stack.index.packed_rows[static_cast<size_t>(k)];
                function(static_cast<size_t>(k), static_cast<size_t>(packed_rows & INT32_MAX), c, packed_rows < 0 ? -1.0 : 1.0);
            }
        }
    };
    for (size_t i = 0; i < depth; ++i) {
        std::vector<double> out(static_cast<size_t>(stack.shape.n_out[stack.parts[i]]), 0.0);
        for (size_t r = 0; r < stack.biases[i].size(); ++r) out[r] = static_cast<double>(stack.biases[i][r]);
        for_weights(i, [&](size_t k, size_t row, size_t column, double sign) {
            out[row] += sign * static_cast<double>(stack.theta[k]) * outputs.back()[column];
        });
        for (double& value : out) value = ReferenceNetwork::activate(stack.activations[i], value);
        outputs.push_back(out);
    }
    y = outputs.back();
    std::vector<double> delta(dy, dy + y.size());
    for (size_t i = depth; i-- > 0;) {
        dx.assign(outputs[i].size(), 0.0);
        for (size_t r = 0; r < delta.size(); ++r)
            delta[r] *= ReferenceNetwork::slope(stack.activations[i], outputs[i + 1][r]);
        for (size_t r = 0; r < stack.biases[i].size(); ++r) gradients.bias[i][r] += delta[r];
        for_weights(i, [&](size_t k, size_t row, size_t column, double sign) {
            gradients.theta[k] += sign * outputs[i][column] * delta[row];
            dx[column] += sign * static_cast<double>(stack.theta[k]) * delta[row];
        });
        delta = dx;
    }
}

static void compare(Random& random, int64_t batch) {
    const SparseStack stack = random_stack(random);
    const size_t depth = stack.parts.size();
    std::vector<wb_stack_layer> layers;
    int64_t outputs = 0;
    for (size_t i = 0; i < depth; ++i) {
        const size_t part = stack.parts[i];
        int64_t column = 0;
        for (size_t j = 0; j < part; ++j) column += stack.shape.n_in[j];
        layers.push_back(wb_stack_layer{stack.shape.n_in[part], stack.shape.n_out[part],
                                        static_cast<int64_t>(stack.theta.size()),
                                        stack.index.colptr.data() + column, stack.index.packed_rows.data(), stack.theta.data(),
                                        stack.biases[i].empty() ? nullptr : stack.biases[i].data(),
                                        stack.activations[i], 0});
        outputs += stack.shape.n_out[part];
    }
    const int64_t n_in = layers.front().n_in, n_out = layers.back().n_out;
    const int64_t x_stride = n_in + random.below(3), y_stride = n_out + random.below(3), dx_stride = n_in + random.below(3);
    // Arrays end where the last sample does, so that the sanitizers notice a step beyond.
    const auto rows = [&](int64_t stride, int64_t width) { return static_cast<size_t>(batch ? (batch - 1) * stride + width : 0); };
    std::vector<float> x(rows(x_stride, n_in)), dy(rows(y_stride, n_out)), y(dy.size(), -1), dx(rows(dx_stride, n_in), -1);
    for (size_t i = 0; i < x.size(); ++i) {
        const bool zero = static_cast<int64_t>(i) % x_stride / 8 % 2 == 0 && random.below(20) != 0;  // blocks of zeros
        x[i] = zero ? 0.0f : static_cast<float>(random.signed_uniform());
    }
    for (float& value : dy) value = static_cast<float>(random.signed_uniform());
    const int64_t panels = std::max<int64_t>(1, (batch + 31) / 32);
    const int64_t samples = (batch + 8 * panels - 1) / (8 * panels) * 8 * panels;
    std::vector<float> kept(static_cast<size_t>(outputs * samples + 2));
    const float* no_x = x.empty() ? nullptr : x.data();
    wb_stack_forward_f32(layers.data(), static_cast<int64_t>(depth), no_x, x_stride, batch, kept.data(), y.data(), y_stride);

    // Another forward pass in between: the backward pass must not take what that one left for its own.
    if (random.below(2) == 0 && batch > 0) {
        const std::vector<float> other_x(x.size(), 0.5f);
        std::vector<float> other_kept(kept.size()), other_y(y.size());
        wb_stack_forward_f32(layers.data(), static_cast<int64_t>(depth), other_x.data(), x_stride, batch, other_kept.data(),
                             other_y.data(), y_stride);
    }

    Gradients expected{std::vector<double>(stack.theta.size(), 0.0), {}};
    std::vector<float> dtheta(stack.theta.size(), -7);
    std::vector<std::vector<float>> dbias;
    for (const auto& bias : stack.biases) {
        expected.bias.emplace_back(bias.size(), 0.0);
        dbias.emplace_back(bias.size(), -7.0f);
    }
    std::vector<float*> gradients(depth, dtheta.data());
    for (auto& bias : dbias) gradients.push_back(bias.empty() ? nullptr : bias.data());
    const bool need_dx = random.below(2) == 0;
    wb_stack_backward_f32(layers.data(), static_cast<int64_t>(depth), no_x, x_stride, batch, kept.data(), dy.data(), y_stride,
                          need_dx ? dx.data() : nullptr, dx_stride, gradients.data());

    for (int64_t b = 0; b < batch; ++b) {
        std::vector<double> expected_y, expected_dx;
        reference(stack, x.data() + b * x_stride, dy.data() + b * y_stride, expected_y, expected_dx, expected);
        for (int64_t r = 0; r < n_out; ++r)
            CHECK_CLOSE(y[static_cast<size_t>(b * y_stride + r)], expected_y[static_cast<size_t>(r)], 1e-4);
        for (int64_t c = 0; c < n_in; ++c)
            CHECK_CLOSE(dx[static_cast<size_t>(b * dx_stride + c)], need_dx ? expected_dx[static_cast<size_t>(c)] : -1.0, 1e-4);
    }
    // Parts that are not in the stack are left alone.
    std::vector<bool> covered(stack.shape.n_in.size(), false);
    for (size_t part : stack.parts) covered[part] = true;
    int64_t column = 0;
    for (size_t part = 0; part < covered.size(); column += stack.shape.n_in[part++]) {
        const size_t first = static_cast<size_t>(column), last = first + static_cast<size_t>(stack.shape.n_in[part]);
        for (int64_t k = stack.index.colptr[first]; k < stack.index.colptr[last]; ++k)
            CHECK_CLOSE(dtheta[static_cast<size_t>(k)], covered[part] ? expected.theta[static_cast<size_t>(k)] : -7.0, 2e-4);
    }
    for (size_t i = 0; i < depth; ++i)
        for (size_t r = 0; r < dbias[i].size(); ++r) CHECK_CLOSE(dbias[i][r], expected.bias[i][r], 2e-4);
}

int main() {
    Random random(17);
    for (int round = 0; round < 2000; ++round) compare(random, random.below(random.below(4) ? 20 : 110));
    std::printf("stack: ok (%s)\n", wb_isa());
}
