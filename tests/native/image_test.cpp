// The kernels of networks for images, on random shapes, against nested loops; every number of threads gives the same bits.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "../../csrc/wirebound.h"

namespace {

int failures = 0;

void expect_close(const std::vector<double>& got, const std::vector<double>& want, const char* what) {
    for (size_t i = 0; i < want.size(); ++i) {
        if (std::abs(got[i] - want[i]) <= 1e-9 * (1 + std::abs(want[i]))) continue;
        std::printf("%s[%zu] (=%g) must be %g\n", what, i, got[i], want[i]);
        ++failures;
        return;
    }
}

template <class V>
void expect_same(const V& a, const V& b, const char* what) {
    if (a == b) return;
    std::printf("%s depends on the number of threads\n", what);
    ++failures;
}

std::vector<double> draw(size_t count, std::mt19937_64& random) {
    std::normal_distribution<double> normal;
    std::vector<double> values(count);
    for (double& value : values) value = normal(random);
    return values;
}

// d of channel c at a pixel.
double size_at(const wb_pool_norm& n, const std::vector<double>& x, int64_t b, int64_t c, int64_t pixels, int64_t p) {
    double sum = 0;
    for (int64_t o = std::max<int64_t>(0, c - n.radius); o <= std::min(n.channels - 1, c + n.radius); ++o) {
        const double value = std::max(0.0, x[static_cast<size_t>((b * n.channels + o) * pixels + p)]);
        sum += value * value;
    }
    return n.bias + n.alpha * sum;
}

std::vector<double> normalised(const wb_pool_norm& n, const std::vector<double>& x, int64_t pixels) {
    std::vector<double> y(x.size());
    for (int64_t b = 0; b < n.batch; ++b)
        for (int64_t c = 0; c < n.channels; ++c)
            for (int64_t p = 0; p < pixels; ++p) {
                const size_t at = static_cast<size_t>((b * n.channels + c) * pixels + p);
                y[at] = std::max(0.0, x[at]) * std::pow(size_at(n, x, b, c, pixels, p), -n.beta);
            }
    return y;
}

std::vector<double> pooled(const wb_pool_norm& n, const std::vector<double>& x) {
    std::vector<double> y;
    for (int64_t plane = 0; plane < n.batch * n.channels; ++plane)
        for (int64_t row = 0; row < n.pooled[0]; ++row)
            for (int64_t column = 0; column < n.pooled[1]; ++column) {
                double best = -1e300;
                for (int64_t i = row * n.step; i < std::min(n.size[0], row * n.step + n.window); ++i)
                    for (int64_t j = column * n.step; j < std::min(n.size[1], column * n.step + n.window); ++j)
                        best = std::max(best, x[static_cast<size_t>((plane * n.size[0] + i) * n.size[1] + j)]);
                y.push_back(best);
            }
    return y;
}

wb_pool_norm draw_shape(std::mt19937_64& random) {
    const auto from = [&](int64_t low, int64_t high) { return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1)); };
    wb_pool_norm n{};
    n.batch = from(1, 18);
    n.channels = from(1, 40);
    n.window = from(1, 4);
    n.step = from(1, 3);
    n.radius = random() % 2 ? 4 : from(0, 6);
    n.alpha = 0.1;
    n.beta = random() % 2 ? 0.75 : 0.6;
    n.bias = 1.5;
    for (int axis = 0; axis < 2; ++axis) {
        n.size[axis] = from(1, 14);
        int64_t count = (std::max<int64_t>(0, n.size[axis] - n.window) + n.step - 1) / n.step + 1;
        while ((count - 1) * n.step >= n.size[axis]) --count;
        n.pooled[axis] = count;
    }
    return n;
}

// The slope of sum(weights * f(x)) along a direction, against the gradient.
template <class F>
void expect_slope(F&& loss, std::vector<double> x, const std::vector<double>& gradient, std::mt19937_64& random, const char* what) {
    const auto direction = draw(x.size(), random);
    double want = 0;
    for (size_t i = 0; i < x.size(); ++i) want += gradient[i] * direction[i];
    const double h = 1e-7;
    auto ahead = x, behind = x;
    for (size_t i = 0; i < x.size(); ++i) ahead[i] += h * direction[i], behind[i] -= h * direction[i];
    const double slope = (loss(ahead) - loss(behind)) / (2 * h);
    if (std::abs(slope - want) <= 1e-4 * (10 + std::abs(want))) return;
    std::printf("the gradient of %s gives a slope of %g, not %g\n", what, want, slope);
    ++failures;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

void check_norm_pool(std::mt19937_64& random) {
    const wb_pool_norm n = draw_shape(random);
    const int64_t pixels = n.size[0] * n.size[1], out = n.batch * n.channels * n.pooled[0] * n.pooled[1];
    const auto x = draw(static_cast<size_t>(n.batch * n.channels * pixels), random), dy = draw(static_cast<size_t>(out), random);
    std::vector<double> y(dy.size()), dx(x.size()), y1, dx1;
    std::vector<uint8_t> places(dy.size());
    for (const int threads : {1, 3}) {
        wb_norm_pool_forward_f64(&n, x.data(), places.data(), y.data(), threads);
        wb_norm_pool_backward_f64(&n, x.data(), places.data(), dy.data(), dx.data(), threads);
        if (threads == 1) y1 = y, dx1 = dx;
    }
    expect_same(y, y1, "norm_pool");
    expect_same(dx, dx1, "norm_pool's gradient");
    expect_close(y, pooled(n, normalised(n, x, pixels)), "norm_pool");
    expect_slope([&](const auto& at) { return dot(dy, pooled(n, normalised(n, at, pixels))); }, x, dx, random, "norm_pool");
}

void check_stem(std::mt19937_64& random) {
    wb_stem s{};
    s.after = draw_shape(random);
    s.in_channels = 1 + static_cast<int64_t>(random() % 4);
    for (int axis = 0; axis < 2; ++axis) {
        s.kernel[axis] = 1 + static_cast<int64_t>(random() % 5);
        s.before[axis] = static_cast<int64_t>(random() % static_cast<uint64_t>(s.kernel[axis]));
        s.in_size[axis] = std::max<int64_t>(1, s.after.size[axis] - 2 * s.before[axis] + s.kernel[axis] - 1);
    }
    const wb_pool_norm& n = s.after;
    const int64_t taps = s.in_channels * s.kernel[0] * s.kernel[1], out_pixels = n.pooled[0] * n.pooled[1];
    const auto x = draw(static_cast<size_t>(n.batch * s.in_channels * s.in_size[0] * s.in_size[1]), random);
    const auto weight = draw(static_cast<size_t>(n.channels * taps), random), bias = draw(static_cast<size_t>(n.channels), random);
    const auto dy = draw(static_cast<size_t>(n.batch * n.channels * out_pixels), random);
    const auto plain = [&](const std::vector<double>& w, const std::vector<double>& offset) {
        std::vector<double> y;
        for (int64_t b = 0; b < n.batch; ++b)
            for (int64_t o = 0; o < n.channels; ++o)
                for (int64_t row = 0; row < n.size[0]; ++row)
                    for (int64_t column = 0; column < n.size[1]; ++column) {
                        double sum = offset[static_cast<size_t>(o)];
                        for (int64_t tap = 0; tap < taps; ++tap) {
                            const int64_t kx = tap % s.kernel[1], ky = tap / s.kernel[1] % s.kernel[0];
                            const int64_t c = tap / s.kernel[1] / s.kernel[0];
                            const int64_t i = row + ky - s.before[0], j = column + kx - s.before[1];
                            if (i < 0 || j < 0 || i >= s.in_size[0] || j >= s.in_size[1]) continue;
                            sum += w[static_cast<size_t>(o * taps + tap)] *
                                   x[static_cast<size_t>(((b * s.in_channels + c) * s.in_size[0] + i) * s.in_size[1] + j)];
                        }
                        y.push_back(std::max(0.0, sum));
                    }
        return normalised(n, pooled(n, y), out_pixels);
    };
    std::vector<double> kept(dy.size()), y(dy.size()), dweight(weight.size()), dbias(bias.size()), y1, dweight1, dbias1;
    std::vector<uint8_t> places(dy.size());
    for (const int threads : {1, 3}) {
        wb_stem_forward_f64(&s, x.data(), weight.data(), bias.data(), kept.data(), places.data(), y.data(), threads);
        wb_stem_backward_f64(&s, x.data(), kept.data(), places.data(), dy.data(), dweight.data(), dbias.data(), threads);
        if (threads == 1) y1 = y, dweight1 = dweight, dbias1 = dbias;
    }
    expect_same(y, y1, "stem");
    expect_same(dweight, dweight1, "stem's gradient");
    expect_same(dbias, dbias1, "stem's gradient to the bias");
    expect_close(y, plain(weight, bias), "stem");
    expect_slope([&](const auto& at) { return dot(dy, plain(at, bias)); }, weight, dweight, random, "stem");
    expect_slope([&](const auto& at) { return dot(dy, plain(weight, at)); }, bias, dbias, random, "stem's bias");
}

void check_pieces(std::mt19937_64& random) {
    const wb_pieces task{7, 3, {9, 11}, {1 + static_cast<int64_t>(random() % 9), 1 + static_cast<int64_t>(random() % 11)}};
    std::vector<uint8_t> images(4 * 3 * 99), mirrored(7);
    for (auto& byte : images) byte = static_cast<uint8_t>(random());
    std::vector<int64_t> chosen, top, left;
    std::vector<float> contrast;
    for (size_t i = 0; i < 7; ++i) {
        chosen.push_back(static_cast<int64_t>(random() % 4));
        top.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(10 - task.piece[0])));
        left.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(12 - task.piece[1])));
        mirrored[i] = static_cast<uint8_t>(random() % 2);
        contrast.push_back(0.5f + static_cast<float>(random() % 100) / 100);
    }
    const int64_t numbers = 3 * task.piece[0] * task.piece[1];
    std::vector<float> out(static_cast<size_t>(7 * numbers)), one;
    for (const int threads : {1, 3}) {
        wb_cut_pieces(&task, images.data(), chosen.data(), top.data(), left.data(), mirrored.data(), contrast.data(), out.data(), threads);
        if (threads == 1) one = out;
    }
    expect_same(out, one, "cut_pieces");
    for (int64_t b = 0; b < 7; ++b) {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < numbers; ++i) {
            const double value = static_cast<double>(out[static_cast<size_t>(b * numbers + i)]);
            mean += value / static_cast<double>(numbers);
            square += value * value / static_cast<double>(numbers);
        }
        if (std::abs(mean) > 1e-4 || square > 1.001 || (numbers > 30 && square < 0.999)) {
            std::printf("a piece has mean %g and mean square %g\n", mean, square);
            ++failures;
        }
    }
}

}  // namespace

int main() {
    std::mt19937_64 random(11);
    for (int i = 0; i < 25; ++i) {
        check_norm_pool(random);
        check_stem(random);
        check_pieces(random);
    }
    if (failures == 0) std::printf("images: fine\n");
    return failures != 0;
}
