// The linear kernels, sparse and by dense blocks, against three nested loops, on random shapes: empty layers, empty rows
// and columns, no connection and all of them, every batch size up to 70 and some above, padded strides, every combination of outputs,
// several numbers of threads (whose results must agree to the last bit), and layers large enough to be cut into tiles.
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
    static constexpr auto forward = wb_linear_forward_f32;
    static constexpr auto backward = wb_linear_backward_f32;
};
struct Kernels64 {
    static constexpr auto forward = wb_linear_forward_f64;
    static constexpr auto backward = wb_linear_backward_f64;
};

struct DenseKernels32 {
    static constexpr auto forward = wb_dense_forward_f32;
    static constexpr auto backward = wb_dense_backward_f32;
};
struct DenseKernels64 {
    static constexpr auto forward = wb_dense_forward_f64;
    static constexpr auto backward = wb_dense_backward_f64;
};

struct Shape {
    int64_t batch, n_in, n_out;
    double density;
};

int failures = 0;

template <class T>
void expect_close(const std::vector<T>& got, const std::vector<double>& want, const std::vector<double>& scale,
                  const char* what, const Shape& shape) {
    // `scale` is the sum of the absolute values of the terms: rounding is measured against it.
    for (size_t i = 0; i < want.size(); ++i) {
        const double allowed = 64 * std::numeric_limits<T>::epsilon() * (scale[i] + 1e-30);
        if (std::abs(static_cast<double>(got[i]) - want[i]) <= allowed) continue;
        std::printf("%s[%zu] (=%g) must be %g: batch %ld, %ld -> %ld, density %g\n", what, i,
                    static_cast<double>(got[i]), want[i], static_cast<long>(shape.batch),
                    static_cast<long>(shape.n_in), static_cast<long>(shape.n_out), shape.density);
        ++failures;
        return;
    }
}

template <class T>
void expect_same(const std::vector<T>& a, const std::vector<T>& b, const char* what) {
    if (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0) return;
    std::printf("%s depends on the number of threads\n", what);
    ++failures;
}

template <class T, class Kernels>
void check(const Shape& shape, std::mt19937_64& random) {
    const auto [batch, n_in, n_out, density] = shape;
    std::uniform_real_distribution<double> uniform(0, 1);
    std::normal_distribution<double> normal;

    // A wiring whose pointers do not start at zero, as for a layer in the middle of a larger one.
    const int64_t base = static_cast<int64_t>(random() % 1000);
    std::vector<int64_t> colptr{base};
    std::vector<int32_t> packed_rows;
    for (int64_t column = 0; column < n_in; ++column) {
        if (density >= 0.01) {
            for (int64_t row = 0; row < n_out; ++row)
                if (uniform(random) < density) packed_rows.push_back(static_cast<int32_t>(row));
        } else if (density > 0) {  // sparse: a few increasing rows
            int64_t row = static_cast<int64_t>(uniform(random) / density);
            for (; row < n_out; row += 1 + static_cast<int64_t>(2 * uniform(random) / density))
                packed_rows.push_back(static_cast<int32_t>(row));
        }
        colptr.push_back(base + static_cast<int64_t>(packed_rows.size()));
    }
    for (auto& entry : packed_rows)
        if (random() % 2) entry |= INT32_MIN;
    std::vector<T> theta(packed_rows.size());
    for (auto& value : theta) value = static_cast<T>(random() % 8 == 0 ? 0.0 : uniform(random));

    const int64_t x_stride = n_in + static_cast<int64_t>(random() % 3);
    const int64_t y_stride = n_out + static_cast<int64_t>(random() % 3);
    const auto filled = [&](int64_t rows, int64_t stride, int64_t columns) {
        // Exactly as long as needed, so that a sanitizer sees every step too far.
        std::vector<T> values(static_cast<size_t>(rows > 0 ? (rows - 1) * stride + columns : 0));
        for (auto& value : values) value = static_cast<T>(normal(random));
        return values;
    };
    const std::vector<T> x = filled(batch, x_stride, n_in), dy = filled(batch, y_stride, n_out);
    const std::vector<T> bias = filled(1, n_out, n_out);
    std::vector<T> y = filled(batch, y_stride, n_out), dx = filled(batch, x_stride, n_in), dtheta(packed_rows.size(), T(7));
    const bool with_bias = random() % 2;

    // Padding between rows must survive, so the expectation starts from what is there.
    std::vector<double> want_y(y.begin(), y.end()), scale_y(y.size());
    std::vector<double> want_dx(dx.begin(), dx.end()), scale_dx(dx.size());
    std::vector<double> want_dtheta(packed_rows.size()), scale_dtheta(packed_rows.size());
    for (int64_t b = 0; b < batch; ++b) {
        for (int64_t row = 0; row < n_out; ++row) {
            want_y[b * y_stride + row] = with_bias ? bias[row] : 0;
            scale_y[b * y_stride + row] = std::abs(want_y[b * y_stride + row]);
        }
        for (int64_t column = 0; column < n_in; ++column) {
            want_dx[b * x_stride + column] = 0;
            for (int64_t k = colptr[column] - base; k < colptr[column + 1] - base; ++k) {
                const int64_t row = packed_rows[k] & 0x7fffffff;
                const double sign = packed_rows[k] < 0 ? -1 : 1, weight = sign * theta[k];
                const double in = x[b * x_stride + column], out = dy[b * y_stride + row];
                want_y[b * y_stride + row] += weight * in;
                scale_y[b * y_stride + row] += std::abs(weight * in);
                want_dx[b * x_stride + column] += weight * out;
                scale_dx[b * x_stride + column] += std::abs(weight * out);
                want_dtheta[k] += sign * in * out;
                scale_dtheta[k] += std::abs(in * out);
            }
        }
    }

    const int64_t count = static_cast<int64_t>(theta.size());
    const auto forward = [&](std::vector<T>& to, int threads) {
        const int status = Kernels::forward(x.data(), x_stride, to.data(), y_stride, batch, n_in, n_out, count,
                                            colptr.data(), packed_rows.data(), theta.data(), 0,
                                            with_bias ? bias.data() : nullptr, threads);
        CHECK(status == WB_FINE);
    };
    const auto backward = [&](T* to_dx, T* to_dtheta, int threads) {
        const int status = Kernels::backward(x.data(), x_stride, dy.data(), y_stride, to_dx, x_stride, to_dtheta, batch,
                                             n_in, n_out, count, colptr.data(), packed_rows.data(), theta.data(), threads);
        CHECK(status == WB_FINE);
    };
    auto other_y = y, other_dx = dx, only_dx = dx;
    auto other_dtheta = dtheta, only_dtheta = dtheta;
    const int threads = 2 + static_cast<int>(random() % 4);
    forward(y, 1);
    forward(other_y, threads);
    backward(dx.data(), dtheta.data(), 1);
    backward(other_dx.data(), other_dtheta.data(), threads);
    backward(only_dx.data(), nullptr, threads);
    backward(nullptr, only_dtheta.data(), threads);
    expect_close(y, want_y, scale_y, "y", shape);
    expect_close(dx, want_dx, scale_dx, "dx", shape);
    expect_close(dtheta, want_dtheta, scale_dtheta, "dtheta", shape);
    expect_same(y, other_y, "y");
    expect_same(dx, other_dx, "dx");
    expect_same(dtheta, other_dtheta, "dtheta");
    expect_close(only_dx, want_dx, scale_dx, "dx alone", shape);
    expect_close(only_dtheta, want_dtheta, scale_dtheta, "dtheta alone", shape);
}

void check_both(const Shape& shape, std::mt19937_64& random) {
    check<float, Kernels32>(shape, random);
    check<double, Kernels64>(shape, random);
    check<float, DenseKernels32>(shape, random);
    check<double, DenseKernels64>(shape, random);
}

}  // namespace

int main() {
    std::mt19937_64 random(20240607);
    int cases = 0;
    const auto run = [&](const Shape& shape) {
        check_both(shape, random);
        ++cases;
    };
    for (int64_t batch = 0; batch <= 70; ++batch) {
        const double densities[] = {0.0, 0.02, 0.3, 1.0};
        for (double density : densities)
            run({batch, static_cast<int64_t>(random() % 90), static_cast<int64_t>(random() % 90), density});
    }
    for (int64_t n_in : {0, 1, 2, 63, 64, 65, 130})
        for (int64_t n_out : {0, 1, 7, 8, 9, 300}) run({static_cast<int64_t>(1 + random() % 40), n_in, n_out, 0.2});
    run({33, 300, 700, 0.05});   // enough work for several threads
    run({128, 200, 700, 0.5});   // columns longer than the waiting room of the sums
    run({200, 333, 190, 0.05});  // by rows, several tiles of columns, the last panel narrow
    run({97, 40, 70, 1.0});
    run({531, 70, 50, 0.1});     // more samples than are sorted for at once
    run({101, 50, 3000, 0.03});
    run({300, 40, 100, 0.8});    // more samples than dense blocks take at a time
    run({20, 100, 5000, 0.0005});
    run({32, 20, 80000, 0.00005});  // more rows than one tile
    run({9, 5, 300000, 0.00001});
    std::printf("linear (%s): %d shapes, %d failures\n", wb_isa(), cases, failures);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
