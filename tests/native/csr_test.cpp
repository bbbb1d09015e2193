// The kernels for sparse rows of input against nested loops, on random shapes: empty rows, columns without a connection,
// duplicates, zeros among the values, several numbers of threads (whose results must agree to the last bit); and arrays that
// lie about columns, rows and pointers, of which nothing outside may be touched.
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "../../csrc/wirebound.h"
#include "checks.h"

namespace {

struct Kernels32 {
    static constexpr auto forward = wb_csr_forward_f32;
    static constexpr auto backward = wb_csr_backward_f32;
};
struct Kernels64 {
    static constexpr auto forward = wb_csr_forward_f64;
    static constexpr auto backward = wb_csr_backward_f64;
};

template <class T>
bool close(T got, double want, double scale) {
    return std::abs(static_cast<double>(got) - want) <= 64 * std::numeric_limits<T>::epsilon() * (scale + 1e-30);
}

template <class T>
struct Problem {
    int64_t batch, n_in, n_out;
    std::vector<int64_t> colptr, columns, starts{0};
    std::vector<int32_t> packed_rows;
    std::vector<T> theta, values, dy, bias;
    int64_t connections() const { return static_cast<int64_t>(theta.size()); }
    int64_t nonzeros() const { return static_cast<int64_t>(values.size()); }
};

template <class T>
Problem<T> draw(std::mt19937_64& random, int64_t batch, int64_t n_in, int64_t n_out, double density, int64_t most) {
    std::uniform_real_distribution<double> uniform(0, 1);
    std::normal_distribution<double> normal;
    Problem<T> p{batch, n_in, n_out, {}, {}, {0}, {}, {}, {}, {}, {}};
    const int64_t first = static_cast<int64_t>(random() % 50);  // a layer in the middle of a larger wiring
    p.colptr.push_back(first);
    for (int64_t c = 0; c < n_in; ++c) {
        for (int64_t r = 0; r < n_out; ++r) {
            if (uniform(random) >= density) continue;
            const uint32_t sign = random() % 2 ? 0x80000000u : 0u;
            p.packed_rows.push_back(static_cast<int32_t>(static_cast<uint32_t>(r) | sign));
            p.theta.push_back(static_cast<T>(std::abs(normal(random))));
        }
        p.colptr.push_back(first + p.connections());
    }
    for (int64_t b = 0; b < batch; ++b) {
        const int64_t count = n_in ? static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1)) : 0;
        for (int64_t i = 0; i < count; ++i) {  // in any order, some of them twice
            p.columns.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(n_in)));
            p.values.push_back(random() % 8 ? static_cast<T>(normal(random)) : T(0));
        }
        p.starts.push_back(p.nonzeros());
    }
    for (int64_t i = 0; i < batch * n_out; ++i) p.dy.push_back(static_cast<T>(normal(random)));
    for (int64_t i = 0; i < n_out; ++i) p.bias.push_back(static_cast<T>(normal(random)));
    return p;
}

template <class T, class Kernels>
int forward(const Problem<T>& p, std::vector<T>& y, int threads, int bound = 1) {
    y.assign(static_cast<size_t>(p.batch * p.n_out), T(7));
    return Kernels::forward(p.values.data(), p.columns.data(), p.starts.data(), p.batch, p.nonzeros(), y.data(), p.n_in,
                            p.n_out, p.connections(), p.colptr.data(), p.packed_rows.data(), p.theta.data(), bound,
                            p.bias.data(), threads);
}

template <class T, class Kernels>
int backward(const Problem<T>& p, std::vector<T>& dtheta, std::vector<uint8_t>& seen, int64_t& fresh, int threads) {
    dtheta.assign(p.theta.size(), T(7));
    seen.assign(static_cast<size_t>(p.n_in), 0);
    return Kernels::backward(p.values.data(), p.columns.data(), p.starts.data(), p.batch, p.nonzeros(), p.dy.data(),
                             p.n_out, dtheta.data(), p.n_in, p.n_out, p.connections(), p.colptr.data(),
                             p.packed_rows.data(), seen.data(), &fresh, threads);
}

template <class T, class Kernels>
void check(std::mt19937_64& random, int64_t batch, int64_t n_in, int64_t n_out, double density, int64_t most) {
    const Problem<T> p = draw<T>(random, batch, n_in, n_out, density, most);
    std::vector<double> y(static_cast<size_t>(batch * n_out)), y_scale = y;
    std::vector<double> dtheta(p.theta.size()), dtheta_scale = dtheta;
    std::vector<uint8_t> occurs(static_cast<size_t>(n_in), 0);
    for (int64_t b = 0; b < batch; ++b) {
        for (int64_t r = 0; r < n_out; ++r)
            y[b * n_out + r] = p.bias[r], y_scale[b * n_out + r] = std::abs(static_cast<double>(p.bias[r]));
        for (int64_t i = p.starts[b]; i < p.starts[b + 1]; ++i) {
            const int64_t c = p.columns[i];
            if (p.values[i] != 0) occurs[c] = 1;
            for (int64_t k = p.colptr[c] - p.colptr[0]; k < p.colptr[c + 1] - p.colptr[0]; ++k) {
                const int64_t r = p.packed_rows[k] & 0x7fffffff;
                const double sign = p.packed_rows[k] < 0 ? -1 : 1, value = p.values[i];
                y[b * n_out + r] += value * sign * p.theta[k];
                y_scale[b * n_out + r] += std::abs(value * p.theta[k]);
                dtheta[k] += sign * value * p.dy[b * n_out + r];
                dtheta_scale[k] += std::abs(value * p.dy[b * n_out + r]);
            }
        }
    }
    int64_t occurring = 0;
    for (uint8_t flag : occurs) occurring += flag;
    std::vector<T> first_y, first_dtheta;
    for (int threads : {1, 2, 3}) {
        std::vector<T> got, gradient;
        std::vector<uint8_t> seen;
        int64_t fresh = -1;
        CHECK((forward<T, Kernels>(p, got, threads) == WB_FINE));
        CHECK((backward<T, Kernels>(p, gradient, seen, fresh, threads) == WB_FINE));
        for (size_t i = 0; i < y.size(); ++i) CHECK(close(got[i], y[i], y_scale[i]));
        for (size_t k = 0; k < dtheta.size(); ++k) CHECK(close(gradient[k], dtheta[k], dtheta_scale[k]));
        CHECK(seen == occurs && fresh == occurring);
        if (threads == 1) first_y = got, first_dtheta = gradient;
        CHECK(got == first_y && gradient == first_dtheta);
    }
}

// Whatever the arrays say, a status comes back and the sanitizer has nothing to report.
template <class T, class Kernels>
void check_lies(std::mt19937_64& random) {
    const int64_t wild[] = {-1, 20, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
    std::vector<T> out;
    std::vector<uint8_t> seen;
    int64_t fresh;
    for (int64_t lie : wild) {
        Problem<T> p = draw<T>(random, 4, 20, 6, 0.4, 8);
        while (p.columns.empty()) p = draw<T>(random, 4, 20, 6, 0.4, 8);
        Problem<T> columns = p, pointers = p, starts = p;
        columns.columns[0] = lie;
        CHECK((forward<T, Kernels>(columns, out, 2) == WB_BAD_INPUT));
        CHECK((backward<T, Kernels>(columns, out, seen, fresh, 2) == WB_BAD_INPUT));
        pointers.colptr[static_cast<size_t>(p.columns[0] + 1)] = lie == 20 ? 100'000 : lie;
        CHECK((forward<T, Kernels>(pointers, out, 2) == WB_BAD_INDEX));
        CHECK((backward<T, Kernels>(pointers, out, seen, fresh, 2) == WB_BAD_INDEX));
        starts.starts[1] = lie == 20 ? 100'000 : lie;
        CHECK((forward<T, Kernels>(starts, out, 2) == WB_BAD_INPUT));
        CHECK((backward<T, Kernels>(starts, out, seen, fresh, 2) == WB_BAD_INPUT));
    }
    Problem<T> p = draw<T>(random, 3, 5, 4, 1.0, 4);
    p.columns.assign(1, 2), p.values.assign(1, T(1)), p.starts = {0, 1, 1, 1};
    p.packed_rows[static_cast<size_t>(p.colptr[2] - p.colptr[0])] = 4;
    CHECK((forward<T, Kernels>(p, out, 1) == WB_BAD_INDEX));
    CHECK((backward<T, Kernels>(p, out, seen, fresh, 1) == WB_BAD_INDEX));
    p.packed_rows[static_cast<size_t>(p.colptr[2] - p.colptr[0])] = 0;
    p.theta[static_cast<size_t>(p.colptr[2] - p.colptr[0])] = T(-1);
    CHECK((forward<T, Kernels>(p, out, 1, 1) == WB_DORMANT));
    CHECK((forward<T, Kernels>(p, out, 1, 0) == WB_FINE));
}

template <class T, class Kernels>
void check_all() {
    std::mt19937_64 random(11);
    check<T, Kernels>(random, 0, 5, 4, 0.5, 3);
    check<T, Kernels>(random, 3, 0, 4, 0.5, 3);
    check<T, Kernels>(random, 3, 5, 0, 0.5, 3);
    check<T, Kernels>(random, 64, 5000, 48, 0.01, 200);  // large enough for several threads
    for (int i = 0; i < 40; ++i) {
        const double densities[] = {0.0, 0.02, 0.3, 1.0};
        check<T, Kernels>(random, static_cast<int64_t>(random() % 40), static_cast<int64_t>(1 + random() % 300),
                          static_cast<int64_t>(1 + random() % 40), densities[random() % 4],
                          static_cast<int64_t>(random() % 30));
    }
    check_lies<T, Kernels>(random);
}

}  // namespace

int main() {
    check_all<float, Kernels32>();
    check_all<double, Kernels64>();
    std::printf("sparse rows: ok\n");
}
