// The convolution kernels against nested loops, on random shapes: strides, paddings larger than the kernel, dilation,
// groups, kernels that leave inputs unseen, empty layers, every batch up to 20 and some larger, every combination of outputs, several
// numbers of threads (whose results must agree to the last bit). Winograd's algorithm goes through the same questions.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "../../csrc/wirebound.h"
#include "checks.h"

namespace {

struct Kernels32 {
    static constexpr bool mixes = false;  // whether the rounding of an output depends on those beside it
    static constexpr auto forward = wb_conv_forward_f32;
    static constexpr auto backward = wb_conv_backward_f32;
};
struct Kernels64 {
    static constexpr bool mixes = false;
    static constexpr auto forward = wb_conv_forward_f64;
    static constexpr auto backward = wb_conv_backward_f64;
};
struct Winograd32 {
    static constexpr bool mixes = true;
    static constexpr auto forward = wb_winograd_forward_f32;
    static constexpr auto backward = wb_winograd_backward_f32;
};
struct Winograd64 {
    static constexpr bool mixes = true;
    static constexpr auto forward = wb_winograd_forward_f64;
    static constexpr auto backward = wb_winograd_backward_f64;
};

int failures = 0;

void describe(const wb_conv& c) {
    const auto show = [](const char* name, const int64_t* pair) {
        std::printf(", %s %ldx%ld", name, static_cast<long>(pair[0]), static_cast<long>(pair[1]));
    };
    std::printf("batch %ld, channels %ld -> %ld, groups %ld", static_cast<long>(c.batch),
                static_cast<long>(c.in_channels), static_cast<long>(c.out_channels), static_cast<long>(c.groups));
    show("in", c.in_size);
    show("out", c.out_size);
    show("kernel", c.kernel);
    show("stride", c.stride);
    show("before", c.before);
    show("dilation", c.dilation);
    std::printf("\n");
}

template <class T, class Kernels>
void expect_close(const std::vector<T>& got, const std::vector<double>& want, const std::vector<double>& scale,
                  const char* what, const wb_conv& conv) {
    // `scale` is the sum of the absolute values of the terms: rounding is measured against it.
    const double largest = scale.empty() ? 0 : *std::max_element(scale.begin(), scale.end());
    for (size_t i = 0; i < want.size(); ++i) {
        const double allowed = 64 * std::numeric_limits<T>::epsilon() * ((Kernels::mixes ? largest : scale[i]) + 1e-30);
        if (std::abs(static_cast<double>(got[i]) - want[i]) <= allowed) continue;
        std::printf("%s[%zu] (=%g) must be %g: ", what, i, static_cast<double>(got[i]), want[i]);
        describe(conv);
        ++failures;
        return;
    }
}

template <class T>
void expect_same(const std::vector<T>& a, const std::vector<T>& b, const char* what, const wb_conv& conv) {
    if (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0) return;
    std::printf("%s depends on the number of threads: ", what);
    describe(conv);
    ++failures;
}

template <class T, class Kernels>
void check(const wb_conv& conv, double density, std::mt19937_64& random) {
    std::uniform_real_distribution<double> uniform(0, 1);
    std::normal_distribution<double> normal;
    const int64_t group_in = conv.in_channels / conv.groups, group_out = conv.out_channels / conv.groups;

    // A wiring whose pointers do not start at zero, as for a layer in the middle of a larger one.
    const int64_t base = static_cast<int64_t>(random() % 1000);
    std::vector<int64_t> colptr{base};
    std::vector<int32_t> packed_rows;
    for (int64_t column = 0; column < group_in * conv.kernel[0] * conv.kernel[1]; ++column) {
        for (int64_t row = 0; row < conv.out_channels; ++row)
            if (uniform(random) < density) packed_rows.push_back(static_cast<int32_t>(row) | (random() % 2 ? INT32_MIN : 0));
        colptr.push_back(base + static_cast<int64_t>(packed_rows.size()));
    }
    const auto filled = [&](int64_t size) {
        std::vector<T> values(static_cast<size_t>(size));
        for (auto& value : values) value = static_cast<T>(normal(random));
        return values;
    };
    const std::vector<T> theta = filled(static_cast<int64_t>(packed_rows.size()));
    const int64_t in_area = conv.in_size[0] * conv.in_size[1], out_area = conv.out_size[0] * conv.out_size[1];
    const std::vector<T> x = filled(conv.batch * conv.in_channels * in_area);
    const std::vector<T> dy = filled(conv.batch * conv.out_channels * out_area), bias = filled(conv.out_channels);
    std::vector<T> y = dy, dx = x, dtheta(packed_rows.size(), T(7));
    const bool with_bias = random() % 2;

    std::vector<double> want_y(y.size()), scale_y(y.size()), want_dx(x.size()), scale_dx(x.size());
    std::vector<double> want_dtheta(packed_rows.size()), scale_dtheta(packed_rows.size());
    for (size_t i = 0; i < y.size(); ++i) {
        want_y[i] = with_bias ? bias[i / static_cast<size_t>(out_area) % static_cast<size_t>(conv.out_channels)] : 0;
        scale_y[i] = std::abs(want_y[i]);
    }
    size_t k = 0;
    for (size_t column = 0; column + 1 < colptr.size(); ++column) {
        const int64_t place = static_cast<int64_t>(column) % (conv.kernel[0] * conv.kernel[1]);
        const int64_t channel = static_cast<int64_t>(column) / (conv.kernel[0] * conv.kernel[1]);
        const int64_t ky = place / conv.kernel[1], kx = place % conv.kernel[1];
        for (; k < static_cast<size_t>(colptr[column + 1] - base); ++k) {
            const int64_t row = packed_rows[k] & 0x7fffffff, in_channel = row / group_out * group_in + channel;
            const double sign = packed_rows[k] < 0 ? -1 : 1, weight = sign * theta[k];
            for (int64_t at = 0; at < conv.batch * out_area; ++at) {
                const int64_t b = at / out_area, oy = at % out_area / conv.out_size[1], ox = at % conv.out_size[1];
                const int64_t iy = oy * conv.stride[0] + ky * conv.dilation[0] - conv.before[0];
                const int64_t ix = ox * conv.stride[1] + kx * conv.dilation[1] - conv.before[1];
                if (iy < 0 || iy >= conv.in_size[0] || ix < 0 || ix >= conv.in_size[1]) continue;
                const auto i = static_cast<size_t>((b * conv.in_channels + in_channel) * in_area +
                                                   iy * conv.in_size[1] + ix);
                const auto o = static_cast<size_t>((b * conv.out_channels + row) * out_area + at % out_area);
                want_y[o] += weight * x[i];
                scale_y[o] += std::abs(weight * x[i]);
                want_dx[i] += weight * dy[o];
                scale_dx[i] += std::abs(weight * dy[o]);
                want_dtheta[k] += sign * x[i] * dy[o];
                scale_dtheta[k] += std::abs(x[i] * dy[o]);
            }
        }
    }

    const int64_t count = static_cast<int64_t>(theta.size());
    const auto forward = [&](std::vector<T>& to, int threads) {
        const int status = Kernels::forward(&conv, x.data(), to.data(), count, colptr.data(), packed_rows.data(),
                                            theta.data(), 0, with_bias ? bias.data() : nullptr, threads);
        CHECK(status == WB_FINE);
    };
    const auto backward = [&](T* to_dx, T* to_dtheta, int threads) {
        const int status = Kernels::backward(&conv, x.data(), dy.data(), to_dx, to_dtheta, count, colptr.data(),
                                             packed_rows.data(), theta.data(), threads);
        CHECK(status == WB_FINE);
    };
    auto other_y = y, other_dx = dx, only_dx = dx, other_dtheta = dtheta, only_dtheta = dtheta;
    const int threads = 2 + static_cast<int>(random() % 4);
    forward(y, 1);
    forward(other_y, threads);
    backward(dx.data(), dtheta.data(), 1);
    backward(other_dx.data(), other_dtheta.data(), threads);
    backward(only_dx.data(), nullptr, threads);
    backward(nullptr, only_dtheta.data(), threads);
    expect_close<T, Kernels>(y, want_y, scale_y, "y", conv);
    expect_close<T, Kernels>(dx, want_dx, scale_dx, "dx", conv);
    expect_close<T, Kernels>(dtheta, want_dtheta, scale_dtheta, "dtheta", conv);
    expect_same(y, other_y, "y", conv);
    expect_same(dx, other_dx, "dx", conv);
    expect_same(dtheta, other_dtheta, "dtheta", conv);
    expect_close<T, Kernels>(only_dx, want_dx, scale_dx, "dx alone", conv);
    expect_close<T, Kernels>(only_dtheta, want_dtheta, scale_dtheta, "dtheta alone", conv);
}

}  // namespace

int main() {
    std::mt19937_64 random(20240608);
    int cases = 0;
    const auto run = [&](const wb_conv& conv, double density) {
        check<float, Kernels32>(conv, density, random);
        check<double, Kernels64>(conv, density, random);
        ++cases;
    };
    const auto draw = [&](int64_t low, int64_t high) {
        return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
    };
    for (int i = 0; i < 250; ++i) {
        wb_conv conv{};
        conv.batch = i < 21 ? i : draw(1, 20);
        conv.groups = draw(1, 3);
        conv.in_channels = conv.groups * draw(1, 4);
        conv.out_channels = conv.groups * draw(1, 4);
        for (int axis = 0; axis < 2; ++axis) {
            conv.kernel[axis] = draw(1, 4);
            conv.stride[axis] = draw(1, 4);
            conv.before[axis] = draw(0, 5);
            conv.dilation[axis] = draw(1, 3);
            const int64_t reach = (conv.kernel[axis] - 1) * conv.dilation[axis] + 1;
            const int64_t after = draw(0, 5);
            conv.in_size[axis] = std::max<int64_t>(1, reach - conv.before[axis] - after) + draw(0, 9);
            conv.out_size[axis] = (conv.in_size[axis] + conv.before[axis] + after - reach) / conv.stride[axis] + 1;
        }
        const double densities[] = {0.0, 0.1, 0.5, 1.0};
        run(conv, densities[i % 4]);
    }
    run({9, 6, 10, 2, {13, 30}, {13, 30}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, 0.5);  // enough work for several threads
    run({33, 5, 4, 1, {8, 8}, {8, 8}, {5, 5}, {1, 1}, {2, 2}, {1, 1}}, 0.3);
    run({1, 3, 4, 1, {20, 40}, {10, 20}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}, 0.5);
    run({2, 70, 9, 1, {5, 5}, {3, 3}, {3, 3}, {1, 1}, {0, 0}, {1, 1}}, 0.2);  // several chunks of channels
    run({40, 3, 5, 1, {7, 9}, {7, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, 0.5);  // a last panel that is half empty
    run({16, 2, 60, 1, {33, 35}, {33, 35}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, 0.2);  // several blocks of lines
    run({16, 60, 2, 1, {33, 35}, {17, 18}, {3, 3}, {2, 2}, {1, 1}, {1, 1}}, 0.2);
    const auto run_winograd = [&](const wb_conv& conv, double density) {
        check<float, Winograd32>(conv, density, random);
        check<double, Winograd64>(conv, density, random);
        ++cases;
    };
    for (int i = 0; i < 60; ++i) {
        const int64_t kernel = i % 2 ? 3 : 5;
        wb_conv conv{draw(1, 9), draw(1, 20), draw(1, 20), 1, {}, {}, {kernel, kernel}, {1, 1}, {}, {1, 1}};
        for (int axis = 0; axis < 2; ++axis) {
            conv.before[axis] = draw(0, 6);
            const int64_t after = draw(0, 6);
            conv.in_size[axis] = std::max<int64_t>(1, kernel - conv.before[axis] - after) + draw(0, 9);
            conv.out_size[axis] = conv.in_size[axis] + conv.before[axis] + after - kernel + 1;
        }
        const double densities[] = {0.0, 0.1, 0.5, 1.0};
        run_winograd(conv, densities[i / 2 % 4]);
    }
    run_winograd({23, 9, 40, 1, {12, 12}, {12, 12}, {5, 5}, {1, 1}, {2, 2}, {1, 1}}, 0.5);  // several blocks of images
    run_winograd({2, 4, 5, 1, {37, 65}, {37, 65}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, 0.5);    // an image is a block
    for (const wb_conv& other : {wb_conv{1, 2, 2, 1, {8, 8}, {8, 8}, {4, 4}, {1, 1}, {2, 2}, {1, 1}},
                                 wb_conv{1, 2, 2, 1, {8, 8}, {4, 4}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                                 wb_conv{1, 2, 2, 2, {8, 8}, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                 wb_conv{1, 2, 2, 1, {8, 8}, {8, 8}, {3, 3}, {1, 1}, {2, 2}, {2, 2}}}) {
        const int64_t colptr[40] = {};
        std::vector<float> numbers(200);
        CHECK(wb_winograd_forward_f32(&other, numbers.data(), numbers.data(), 0, colptr, nullptr, nullptr, 0, nullptr, 1) == WB_BAD_INDEX);
    }
    std::printf("conv (%s): %d shapes, %d failures\n", wb_isa(), cases, failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
