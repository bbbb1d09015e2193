// The recurrent kernels against the equations, one number at a time in double precision, on random layers: both kinds,
// both directions, any lengths, padded strides, no connection and all of them, panels of every width; and threads,
// whose number must not change a bit.
#include <cstring>
#include <vector>

#include "../../csrc/wirebound.h"
#include "checks.h"

template <class T>
struct Kernels;
template <>
struct Kernels<float> {
    static constexpr auto forward = wb_recurrent_forward_f32;
    static constexpr auto backward = wb_recurrent_backward_f32;
    static constexpr double tolerance = 3e-4;
};
template <>
struct Kernels<double> {
    static constexpr auto forward = wb_recurrent_forward_f64;
    static constexpr auto backward = wb_recurrent_backward_f64;
    static constexpr double tolerance = 1e-11;
};

using Numbers = std::vector<double>;

template <class T>
struct Matrix {
    std::vector<int64_t> colptr;
    std::vector<int32_t> packed_rows;
    std::vector<T> theta;
    std::vector<size_t> columns;

    Matrix(Random& random, int64_t rows, int64_t n_in, double density) {
        const int64_t base = random.below(50);
        colptr.push_back(base);
        for (int64_t column = 0; column < n_in; ++column) {
            for (int64_t row = 0; row < rows; ++row) {
                if (random.uniform() >= density) continue;
                packed_rows.push_back(static_cast<int32_t>(row) | (random.below(2) ? INT32_MIN : 0));
                theta.push_back(static_cast<T>(random.uniform()));
                columns.push_back(static_cast<size_t>(column));
            }
            colptr.push_back(base + static_cast<int64_t>(packed_rows.size()));
        }
    }
    size_t size() const { return packed_rows.size(); }
    size_t row(size_t k) const { return static_cast<size_t>(packed_rows[k] & INT32_MAX); }
    double sign(size_t k) const { return packed_rows[k] < 0 ? -1.0 : 1.0; }
    double weight(size_t k) const { return sign(k) * static_cast<double>(theta[k]); }
};

static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// What one sequence does, step by step, and its gradients; all by the definition.
template <class T>
struct Sequence {
    const Matrix<T>&ih, &hh;
    const Numbers &bias_ih, &bias_hh;
    bool gru;
    size_t hidden;
    std::vector<Numbers> xs, hs, cs, from_h, sums;  // hs and cs have the initial state in front

    Numbers product(const Matrix<T>& matrix, const Numbers& bias, const Numbers& in) const {
        Numbers out = bias;
        for (size_t k = 0; k < matrix.size(); ++k) out[matrix.row(k)] += matrix.weight(k) * in[matrix.columns[k]];
        return out;
    }
    void step(const Numbers& x) {
        const Numbers a = product(ih, bias_ih, x), b = product(hh, bias_hh, hs.back());
        Numbers h(hidden), c(hidden), all(a.size());
        for (size_t j = 0; j < hidden; ++j) {
            const auto gate = [&](size_t g) { return a[g * hidden + j] + b[g * hidden + j]; };
            if (gru) {
                const double r = sigmoid(gate(0)), z = sigmoid(gate(1));
                const double n = std::tanh(a[2 * hidden + j] + r * b[2 * hidden + j]);
                h[j] = (1 - z) * n + z * hs.back()[j];
                all[j] = r, all[hidden + j] = z, all[2 * hidden + j] = n;
            } else {
                const double i = sigmoid(gate(0)), f = sigmoid(gate(1)), g = std::tanh(gate(2)), o = sigmoid(gate(3));
                c[j] = f * cs.back()[j] + i * g;
                h[j] = o * std::tanh(c[j]);
                all[j] = i, all[hidden + j] = f, all[2 * hidden + j] = g, all[3 * hidden + j] = o;
            }
        }
        xs.push_back(x), hs.push_back(h), cs.push_back(c), from_h.push_back(b), sums.push_back(all);
    }
    // dh and dc of the last step become those of the initial state; dys and dxs are in the order of the steps.
    void back(Numbers& dh, Numbers& dc, const std::vector<Numbers>& dys, std::vector<Numbers>& dxs, Numbers& dtheta_ih,
              Numbers& dtheta_hh, Numbers& dbias_ih, Numbers& dbias_hh) const {
        for (size_t s = xs.size(); s-- > 0;) {
            Numbers da(bias_ih.size()), db(bias_ih.size()), past(hidden, 0.0);
            for (size_t j = 0; j < hidden; ++j) {
                const double d = dh[j] + dys[s][j];
                const double *v = sums[s].data() + j;
                if (gru) {
                    const double r = v[0], z = v[hidden], n = v[2 * hidden];
                    const double dn = d * (1 - z) * (1 - n * n);
                    da[j] = db[j] = dn * from_h[s][2 * hidden + j] * r * (1 - r);
                    da[hidden + j] = db[hidden + j] = d * (hs[s][j] - n) * z * (1 - z);
                    da[2 * hidden + j] = dn, db[2 * hidden + j] = dn * r;
                    past[j] = d * z;
                } else {
                    const double i = v[0], f = v[hidden], g = v[2 * hidden], o = v[3 * hidden], t = std::tanh(cs[s + 1][j]);
                    const double e = dc[j] + d * o * (1 - t * t);
                    da[j] = e * g * i * (1 - i);
                    da[hidden + j] = e * cs[s][j] * f * (1 - f);
                    da[2 * hidden + j] = e * i * (1 - g * g);
                    da[3 * hidden + j] = d * t * o * (1 - o);
                    dc[j] = e * f;
                }
            }
            if (!gru) db = da;
            dh = past;
            for (size_t k = 0; k < ih.size(); ++k) {
                dxs[s][ih.columns[k]] += ih.weight(k) * da[ih.row(k)];
                dtheta_ih[k] += ih.sign(k) * xs[s][ih.columns[k]] * da[ih.row(k)];
            }
            for (size_t k = 0; k < hh.size(); ++k) {
                dh[hh.columns[k]] += hh.weight(k) * db[hh.row(k)];
                dtheta_hh[k] += hh.sign(k) * hs[s][hh.columns[k]] * db[hh.row(k)];
            }
            for (size_t r = 0; r < da.size(); ++r) dbias_ih[r] += da[r], dbias_hh[r] += db[r];
        }
    }
};

template <class T>
static std::vector<T> random_numbers(Random& random, int64_t count) {
    std::vector<T> found(static_cast<size_t>(count));
    for (T& value : found) value = static_cast<T>(random.signed_uniform());
    return found;
}

template <class T>
static void expect(const std::vector<T>& got, const Numbers& want) {
    for (size_t i = 0; i < want.size(); ++i) CHECK_CLOSE(static_cast<double>(got[i]), want[i], Kernels<T>::tolerance);
}

// `wide`: enough units for threads to share those of one step.
template <class T>
static void check(Random& random, int64_t batch, bool wide = false) {
    const bool gru = random.below(2), reverse = random.below(2), with_bias = random.below(3) > 0, with_lengths = random.below(3) > 0;
    const bool need_dx = random.below(3) > 0, with_dy = random.below(4) > 0, watched = random.below(3) == 0;
    const int64_t steps = random.below(7), n_in = 1 + random.below(9), hidden = wide ? 60 + random.below(20) : 1 + random.below(11);
    const int64_t rows = (gru ? 3 : 4) * hidden;
    const double densities[] = {0, 0.05, 0.3, 1};
    const Matrix<T> ih(random, rows, n_in, densities[random.below(4)]), hh(random, rows, hidden, densities[random.below(4)]);
    const std::vector<T> b_ih = random_numbers<T>(random, with_bias ? rows : 0), b_hh = random_numbers<T>(random, with_bias ? rows : 0);
    std::vector<int64_t> lengths;
    for (int64_t b = 0; with_lengths && b < batch; ++b) lengths.push_back(random.below(steps + 1));
    // Either order of time and batch; arrays end where the last feature does, so that the sanitizers notice a step beyond.
    struct Strides {
        int64_t time, sample, size;
    };
    const auto strides = [&](int64_t features) {
        const int64_t row = features + random.below(3);
        const bool batch_first = random.below(2);
        const int64_t all = steps * batch;
        return Strides{batch_first ? row : row * batch, batch_first ? row * steps : row, all ? (all - 1) * row + features : 0};
    };
    const Strides of_x = strides(n_in), of_y = strides(hidden), of_dy = strides(hidden), of_dx = strides(n_in);
    const std::vector<T> x = random_numbers<T>(random, of_x.size), dy = random_numbers<T>(random, of_dy.size);
    const std::vector<T> h_0 = random_numbers<T>(random, batch * hidden), c_0 = random_numbers<T>(random, batch * hidden);
    const std::vector<T> dh_n = random_numbers<T>(random, batch * hidden), dc_n = random_numbers<T>(random, batch * hidden);
    const auto at = [](const Strides& s, int64_t t, int64_t b) { return static_cast<size_t>(t * s.time + b * s.sample); };

    const int64_t widest = 128 / static_cast<int64_t>(sizeof(T));
    int64_t room = batch / widest * widest;
    for (int64_t width : {widest / 4, widest / 2, widest})
        if (batch % widest > 0 && batch % widest <= width) { room += width; break; }
    std::vector<T> y(static_cast<size_t>(of_y.size), T(-7)), h_n(h_0.size()), c_n(c_0.size());
    std::vector<T> kept(static_cast<size_t>(5 * hidden * steps * room));
    wb_recurrent task{};
    task.kind = gru ? WB_GRU : WB_LSTM, task.reverse = reverse;
    task.steps = steps, task.batch = batch, task.n_in = n_in, task.n_hidden = hidden;
    task.lengths = with_lengths ? lengths.data() : nullptr;
    task.connections_ih = static_cast<int64_t>(ih.size()), task.connections_hh = static_cast<int64_t>(hh.size());
    task.colptr_ih = ih.colptr.data(), task.packed_rows_ih = ih.packed_rows.data(), task.theta_ih = ih.theta.data();
    task.colptr_hh = hh.colptr.data(), task.packed_rows_hh = hh.packed_rows.data(), task.theta_hh = hh.theta.data();
    if (with_bias) task.bias_ih = b_ih.data(), task.bias_hh = b_hh.data();
    task.x = x.data(), task.x_time = of_x.time, task.x_sample = of_x.sample;
    task.h_0 = h_0.data(), task.c_0 = gru ? nullptr : c_0.data();
    task.y = y.data(), task.y_time = of_y.time, task.y_sample = of_y.sample;
    task.h_n = h_n.data(), task.c_n = gru ? nullptr : c_n.data();
    std::vector<T> again;
    CHECK(Kernels<T>::forward(&task, 1, 1) == WB_FINE);  // nothing kept
    again = y;
    task.kept = kept.data();
    CHECK(Kernels<T>::forward(&task, 1, 3) == WB_FINE);
    CHECK(y.empty() || std::memcmp(y.data(), again.data(), y.size() * sizeof(T)) == 0);
    // Two at once, as the directions of a layer, each with memory of its own.
    std::vector<T> other_y(y.size(), T(-7)), other_h(h_n.size()), other_c(c_n.size()), other_kept(kept.size());
    wb_recurrent both[2] = {task, task};
    both[1].y = other_y.data(), both[1].h_n = other_h.data(), both[1].c_n = gru ? nullptr : other_c.data();
    both[1].kept = other_kept.data();
    CHECK(Kernels<T>::forward(both, 2, 2) == WB_FINE);
    CHECK(y == again);
    CHECK(other_y == again);
    CHECK(other_h == h_n);

    std::vector<T> dx(static_cast<size_t>(of_dx.size), T(-7)), dh_0(h_0.size()), dc_0(c_0.size());
    std::vector<T> dtheta_ih(ih.size(), T(-7)), dtheta_hh(hh.size(), T(-7)), dbias_ih(b_ih.size(), T(-7)), dbias_hh(b_hh.size(), T(-7));
    std::vector<T> seen_sums(static_cast<size_t>(watched ? steps * batch * hidden * 4 : 0)), seen_h(seen_sums.size() / 4);
    wb_recurrent_gradients wanted{};
    if (with_dy) wanted.dy = dy.data(), wanted.dy_time = of_dy.time, wanted.dy_sample = of_dy.sample;
    wanted.dh_n = dh_n.data(), wanted.dc_n = gru ? nullptr : dc_n.data();
    if (need_dx) wanted.dx = dx.data(), wanted.dx_time = of_dx.time, wanted.dx_sample = of_dx.sample;
    wanted.dh_0 = dh_0.data(), wanted.dc_0 = gru ? nullptr : dc_0.data();
    wanted.dtheta_ih = dtheta_ih.data(), wanted.dtheta_hh = dtheta_hh.data();
    if (with_bias) wanted.dbias_ih = dbias_ih.data(), wanted.dbias_hh = dbias_hh.data();
    if (watched && !seen_h.empty()) wanted.sums = seen_sums.data(), wanted.h_before = seen_h.data();
    Kernels<T>::backward(&task, &wanted, 1, 1);
    const std::vector<T> alone = dtheta_hh, alone_ih = dtheta_ih, alone_dx = dx, alone_dh = dh_0, alone_bias = dbias_hh;
    const std::vector<T> alone_sums = seen_sums;
    for (int threads : {2, 3}) {
        CHECK(Kernels<T>::backward(&task, &wanted, 1, threads) == WB_FINE);
        CHECK(alone.empty() || std::memcmp(alone.data(), dtheta_hh.data(), alone.size() * sizeof(T)) == 0);
        CHECK(alone_ih == dtheta_ih && alone_dx == dx && alone_dh == dh_0 && alone_bias == dbias_hh);
        CHECK(alone_sums == seen_sums);
    }
    std::vector<T> other_dx(dx.size(), T(-7)), other_dh(dh_0.size()), other_dc(dc_0.size()), other_ih(ih.size()), other_hh(hh.size());
    std::vector<T> other_b_ih(b_ih.size()), other_b_hh(b_hh.size()), other_sums(seen_sums.size()), other_seen(seen_h.size());
    wb_recurrent_gradients both_wanted[2] = {wanted, wanted};
    wb_recurrent_gradients& other = both_wanted[1];
    if (need_dx) other.dx = other_dx.data();
    other.dh_0 = other_dh.data(), other.dc_0 = gru ? nullptr : other_dc.data();
    other.dtheta_ih = other_ih.data(), other.dtheta_hh = other_hh.data();
    if (with_bias) other.dbias_ih = other_b_ih.data(), other.dbias_hh = other_b_hh.data();
    if (wanted.sums != nullptr) other.sums = other_sums.data(), other.h_before = other_seen.data();
    CHECK(Kernels<T>::backward(both, both_wanted, 2, 2) == WB_FINE);
    CHECK(dtheta_hh == alone);
    CHECK(other_hh == alone);
    CHECK(other_dx == dx);
    CHECK(other_dh == dh_0);

    Numbers e_ih(ih.size(), 0.0), e_hh(hh.size(), 0.0), eb_ih(static_cast<size_t>(rows), 0.0), eb_hh = eb_ih;
    const Numbers bias_ih = with_bias ? Numbers(b_ih.begin(), b_ih.end()) : eb_ih, bias_hh = with_bias ? Numbers(b_hh.begin(), b_hh.end()) : eb_ih;
    const auto state = [&](const std::vector<T>& from, int64_t b) {
        return Numbers(from.begin() + b * hidden, from.begin() + (b + 1) * hidden);
    };
    for (int64_t b = 0; b < batch; ++b) {
        const int64_t length = with_lengths ? lengths[static_cast<size_t>(b)] : steps;
        Sequence<T> one{ih, hh, bias_ih, bias_hh, gru, static_cast<size_t>(hidden), {}, {state(h_0, b)}, {state(c_0, b)}, {}, {}};
        std::vector<Numbers> dys;
        for (int64_t s = 0; s < length; ++s) {
            const int64_t t = reverse ? length - 1 - s : s;
            one.step(Numbers(x.begin() + static_cast<int64_t>(at(of_x, t, b)), x.begin() + static_cast<int64_t>(at(of_x, t, b)) + n_in));
            Numbers d(static_cast<size_t>(hidden), 0.0);
            for (size_t j = 0; j < d.size(); ++j) {
                CHECK_CLOSE(static_cast<double>(y[at(of_y, t, b) + j]), one.hs.back()[j], Kernels<T>::tolerance);
                if (with_dy) d[j] = static_cast<double>(dy[at(of_dy, t, b) + j]);
                if (watched) CHECK_CLOSE(static_cast<double>(seen_h[static_cast<size_t>((t * batch + b) * hidden) + j]), one.hs[one.hs.size() - 2][j], Kernels<T>::tolerance);
            }
            dys.push_back(d);
        }
        for (int64_t t = length; t < steps; ++t)
            for (size_t j = 0; j < static_cast<size_t>(hidden); ++j) CHECK(y[at(of_y, t, b) + j] == T(0));
        for (size_t j = 0; j < static_cast<size_t>(hidden); ++j) {
            CHECK_CLOSE(static_cast<double>(h_n[static_cast<size_t>(b * hidden) + j]), one.hs.back()[j], Kernels<T>::tolerance);
            if (!gru) CHECK_CLOSE(static_cast<double>(c_n[static_cast<size_t>(b * hidden) + j]), one.cs.back()[j], Kernels<T>::tolerance);
        }
        Numbers dh = state(dh_n, b), dc = state(dc_n, b);
        std::vector<Numbers> dxs(static_cast<size_t>(length), Numbers(static_cast<size_t>(n_in), 0.0));
        one.back(dh, dc, dys, dxs, e_ih, e_hh, eb_ih, eb_hh);
        expect(std::vector<T>(dh_0.begin() + b * hidden, dh_0.begin() + (b + 1) * hidden), dh);
        if (!gru) expect(std::vector<T>(dc_0.begin() + b * hidden, dc_0.begin() + (b + 1) * hidden), dc);
        for (int64_t t = 0; need_dx && t < steps; ++t)
            for (size_t i = 0; i < static_cast<size_t>(n_in); ++i)
                CHECK_CLOSE(static_cast<double>(dx[at(of_dx, t, b) + i]), t < length ? dxs[static_cast<size_t>(reverse ? length - 1 - t : t)][i] : 0.0, Kernels<T>::tolerance);
    }
    expect(dtheta_ih, e_ih);
    expect(dtheta_hh, e_hh);
    if (with_bias) expect(dbias_ih, eb_ih), expect(dbias_hh, eb_hh);
}

int main() {
    Random random(23);
    for (int round = 0; round < 250; ++round) {
        check<float>(random, random.below(random.below(4) ? 12 : 80));
        check<double>(random, random.below(random.below(4) ? 12 : 80));
    }
    for (int round = 0; round < 12; ++round) {
        check<float>(random, 20 + random.below(20), true);
        check<double>(random, 10 + random.below(10), true);
    }
    std::printf("recurrent: ok (%s)\n", wb_isa());
}
