// Losses of the fused step, on a panel [class][V * 8 samples] of which the first `samples` are real. Each returns the
// sum over its samples and writes the gradient of the mean over the batch; lanes without a sample get gradient 0.
#pragma once

#include "vector_math.inc.cpp"

namespace wb::WB_ISA {

// What both cross-entropies share: e^(z_j - largest) becomes `gradient`, and of each sample the largest z, the sum of those
// powers, and a number that is 0, or NaN if any z is not finite.
template <int V>
struct Softmax {
    alignas(32) float largest[8 * V], sums[8 * V], check[8 * V];

    Softmax(const float* z, int64_t classes, float* gradient) {
        for (int v = 0; v < V; ++v) {
            Floats8 top = load<float, 32>(z + 8 * v), rest{};
            for (int64_t j = 0; j < classes; ++j) {
                const Floats8 value = load<float, 32>(z + (j * V + v) * 8);
                top = value > top ? value : top;
                rest += value * 0.0f;
            }
            Floats8 sum{};
            for (int64_t j = 0; j < classes; ++j) {
                const Floats8 e = exponential(load<float, 32>(z + (j * V + v) * 8) - top);
                store<float, 32>(gradient + (j * V + v) * 8, e);
                sum += e;
            }
            store<float, 32>(largest + 8 * v, top);
            store<float, 32>(sums + 8 * v, sum);
            store<float, 32>(check + 8 * v, rest);
        }
    }

    // ln(sum_j e^(z_j)) of sample b.
    double log_sum(int64_t b) const {
        return std::log(static_cast<double>(sums[b])) + static_cast<double>(largest[b]) + static_cast<double>(check[b]);
    }
};

// Softmax and cross-entropy: the mean of ln(sum_j e^(z_j)) - z_label.
template <int V>
static double cross_entropy(const float* z, int64_t classes, const int64_t* samples, int64_t count, const int64_t* labels,
                            int64_t batch, float* gradient) {
    const float scale = 1.0f / static_cast<float>(batch);
    const Softmax<V> softmax(z, classes, gradient);
    for (int v = 0; v < V; ++v) {
        const Ints8 lane = Ints8{0, 1, 2, 3, 4, 5, 6, 7} + 8 * v;
        const Floats8 factor = lane < static_cast<int32_t>(count) ? scale / load<float, 32>(softmax.sums + 8 * v) : Floats8{};
        for (int64_t j = 0; j < classes; ++j) {
            float* to = gradient + (j * V + v) * 8;
            store<float, 32>(to, load<float, 32>(to) * factor);
        }
    }
    double loss = 0;
    for (int64_t b = 0; b < count; ++b) {
        const int64_t at = labels[samples[b]] * V * 8 + b;
        loss += softmax.log_sum(b) - static_cast<double>(z[at]);
        gradient[at] -= scale;
    }
    return loss;
}

// The same for targets t that are probabilities of all classes: the mean of sum_j t_j (ln(sum_i e^(z_i)) - z_j).
template <int V>
static double soft_cross_entropy(const float* z, int64_t classes, const int64_t* samples, int64_t count,
                                 const float* targets, int64_t target_stride, int64_t batch, float* gradient) {
    const float scale = 1.0f / static_cast<float>(batch);
    const Softmax<V> softmax(z, classes, gradient);
    double loss = 0;
    for (int64_t b = 0; b < 8 * V; ++b) {
        const float* target = targets + samples[b < count ? b : 0] * target_stride;
        float total = 0;
        for (int64_t j = 0; j < classes; ++j) total += target[j];
        const double log_sum = softmax.log_sum(b);
        for (int64_t j = 0; j < classes; ++j) {
            float& to = gradient[j * V * 8 + b];
            to = b < count ? scale * (to / softmax.sums[b] * total - target[j]) : 0.0f;
            if (b < count) loss += static_cast<double>(target[j]) * (log_sum - static_cast<double>(z[j * V * 8 + b]));
        }
    }
    return loss;
}

// The mean of (y - target)^2 over all elements.
template <int V>
static double mean_square(const float* y, int64_t width, const int64_t* samples, int64_t count, const float* targets,
                          int64_t target_stride, int64_t batch, float* gradient) {
    const float scale = 2.0f / static_cast<float>(batch * width);
    double loss = 0;
    std::memset(gradient, 0, static_cast<size_t>(width * V * 8) * sizeof(float));
    for (int64_t b = 0; b < count; ++b) {
        const float* target = targets + samples[b] * target_stride;
        for (int64_t j = 0; j < width; ++j) {
            const float difference = y[j * V * 8 + b] - target[j];
            gradient[j * V * 8 + b] = scale * difference;
            loss += static_cast<double>(difference) * static_cast<double>(difference);
        }
    }
    return loss / static_cast<double>(width);
}

}  // namespace wb::WB_ISA
