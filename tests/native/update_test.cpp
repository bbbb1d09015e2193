// The update against torch's formulas in double, for every rule; deaths, flags, and the same bits for every thread count.
#include <cstring>
#include <limits>
#include <vector>

#include "checks.h"
#include "philox_reference.h"
#include "update_reference.h"
#include "wirebound.h"

template <class T>
struct Kernel;
template <>
struct Kernel<float> {
    static constexpr auto update = wb_update_f32;
    static constexpr auto dead = wb_dead_f32;
    static constexpr double tolerance = 3e-5;
};
template <>
struct Kernel<double> {
    static constexpr auto update = wb_update_f64;
    static constexpr auto dead = wb_dead_f64;
    static constexpr double tolerance = 1e-6;  // the noise is float32
};

template <class T>
struct Arrays {
    std::vector<T> theta, gradient, moment1, moment2, moment2_max;
    std::vector<int32_t> born;
};

template <class T>
static Arrays<T> random_arrays(Random& random, size_t n, int64_t step) {
    Arrays<T> a;
    for (size_t i = 0; i < n; ++i) {
        a.theta.push_back(static_cast<T>(0.02 * random.uniform()));
        a.gradient.push_back(static_cast<T>(random.signed_uniform()));
        a.moment1.push_back(static_cast<T>(random.signed_uniform()));
        a.moment2.push_back(static_cast<T>(random.uniform()));
        a.moment2_max.push_back(static_cast<T>(random.uniform()));
        a.born.push_back(random.below(3) == 0 ? static_cast<int32_t>(random.below(step)) : 0);
    }
    return a;
}

template <class T>
static void compare(Random& random, int64_t n, int threads) {
    wb_rule rule{};
    rule.kind = static_cast<int32_t>(random.below(3));
    rule.nesterov = random.below(2) == 0;
    rule.fresh = random.below(4) == 0;
    rule.decoupled = random.below(2) == 0;
    rule.maximize = random.below(4) == 0;
    rule.bound = random.below(4) != 0;
    rule.clamp = random.below(4) == 0;
    rule.seed = random.next();
    rule.stream = 2 | 1 << 8;
    rule.step = 1 + random.below(1000);
    rule.clock = 1 + random.below(random.below(2) ? 20 : 40000);
    rule.lr = 0.01 * random.uniform();
    rule.momentum = random.uniform();
    rule.dampening = rule.nesterov ? 0 : random.uniform() * static_cast<double>(random.below(2));
    rule.weight_decay = 0.1 * random.uniform() * static_cast<double>(random.below(2));
    rule.beta1 = random.below(2) ? 0.9 : random.uniform();
    rule.beta2 = random.below(2) ? 0.999 : 0.9 + 0.09 * random.uniform();
    rule.eps = 1e-4;
    const bool has_momentum = random.below(2) == 0, amsgrad = random.below(2) == 0, ages = random.below(3) != 0;

    // Two drifts with a gap before, between and after them; the first may have rates of its own and be lazy, the second be
    // frozen.
    const int64_t a = random.below(n / 4 + 1), b = a + random.below(n / 3 + 1), c = b + random.below(n / 8 + 1);
    const bool own = random.below(2) == 0;
    const wb_drift_and_noise drifts[] = {{a, b, 1e-3 * random.uniform(), 1e-2 * random.uniform(), own ? 2 * random.uniform() : 1.0,
                              own ? 2 * random.uniform() : 1.0, 0.0, 0, random.below(2) == 0},
                             {c, c + (n - c) / 2, 0.0, random.below(2) ? 0.0 : 0.02, 1.0, 1.0, 0.0, random.below(4) == 0, 0}};

    Arrays<T> data = random_arrays<T>(random, static_cast<size_t>(n), rule.clock);
    const int64_t still = random.below(4);  // of four connections so many have no gradient, of some stretches none has one
    for (int64_t k = 0; k < n; ++k)
        if (random.below(4) < still || (k / 300) % 2 == 1) data.gradient[static_cast<size_t>(k)] = T(0);
    const Arrays<T> before = data;
    std::vector<int64_t> dead(static_cast<size_t>(n));
    const auto call = [&](Arrays<T>& to, int64_t* out, int64_t capacity, int with_threads) {
        return Kernel<T>::update(&rule, n, to.theta.data(), to.gradient.data(),
                                 rule.kind == WB_ADAM || has_momentum ? to.moment1.data() : nullptr, to.moment2.data(),
                                 amsgrad ? to.moment2_max.data() : nullptr, ages ? to.born.data() : nullptr, drifts, 2, out,
                                 capacity, with_threads);
    };
    const int64_t count = call(data, dead.data(), n, 1);
    CHECK(count >= 0);

    int64_t next = 0;
    for (int64_t k = 0; k < n; ++k) {
        const size_t i = static_cast<size_t>(k);
        ConnectionState s{before.theta[i], before.moment1[i], before.moment2[i], before.moment2_max[i]};
        const double age = ages ? static_cast<double>(rule.clock - before.born[i]) : static_cast<double>(rule.clock);
        wb_rule here = rule;
        bool frozen = false;
        for (const wb_drift_and_noise& drift : drifts) {
            if (k < drift.first || k >= drift.last) continue;
            here.lr *= drift.lr_factor;
            here.weight_decay *= drift.decay_factor;
            frozen = drift.frozen != 0 || (drift.lazy && before.gradient[i] == 0);
        }
        if (!frozen) optimise_reference(here, s, before.gradient[i], has_momentum, amsgrad, age);
        if (rule.bound && !frozen) {
            for (const wb_drift_and_noise& drift : drifts) {
                if (k < drift.first || k >= drift.last) continue;
                s.theta -= drift.shrink;
                if (drift.noise_std != 0)
                    s.theta += drift.noise_std * normal_reference(rule.seed, rule.stream, static_cast<uint64_t>(rule.step), k);
            }
            if (rule.clamp) s.theta = std::fmax(s.theta, 0);
        }
        CHECK_CLOSE(data.theta[i], s.theta, Kernel<T>::tolerance);
        if (rule.kind != WB_NONE && (rule.kind == WB_ADAM || has_momentum))
            CHECK_CLOSE(data.moment1[i], s.moment1, Kernel<T>::tolerance);
        if (rule.kind == WB_ADAM) {
            CHECK_CLOSE(data.moment2[i], s.moment2, Kernel<T>::tolerance);
            if (amsgrad) CHECK_CLOSE(data.moment2_max[i], s.moment2_max, Kernel<T>::tolerance);
        }
        if (rule.bound && data.theta[i] < 0) {
            CHECK(next < count && dead[static_cast<size_t>(next)] == k);
            ++next;
        }
    }
    CHECK(next == count);
    if (rule.clamp || !rule.bound) CHECK(count == 0);

    // Other thread counts, and a capacity that is too small.
    Arrays<T> again = before;
    std::vector<int64_t> few(2, -1), all(static_cast<size_t>(n));
    CHECK(call(again, few.data(), 2, threads) == count);
    CHECK(again.theta.size() == 0 || std::memcmp(again.theta.data(), data.theta.data(), again.theta.size() * sizeof(T)) == 0);
    CHECK(again.moment1 == data.moment1 && again.moment2 == data.moment2 && again.moment2_max == data.moment2_max);
    for (size_t i = 0; i < 2; ++i) CHECK(few[i] == (static_cast<int64_t>(i) < count ? dead[i] : -1));
    if (rule.bound) {
        CHECK(Kernel<T>::dead(again.theta.data(), n, all.data(), n) == count);
        for (int64_t i = 0; i < count; ++i) CHECK(all[static_cast<size_t>(i)] == dead[static_cast<size_t>(i)]);
    }
}

template <class T>
static void finds_what_is_not_finite() {
    for (const double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
        for (size_t at : {size_t{0}, size_t{255}, size_t{256}, size_t{599}}) {
            std::vector<T> theta(600, T(1)), gradient(600, T(0));
            wb_rule rule{};
            rule.kind = WB_SGD;
            rule.bound = 1;
            rule.step = rule.clock = 1;
            rule.lr = 0.1;
            int64_t dead[600];
            const auto refused = [&] {
                const std::vector<T> before = theta;
                CHECK(Kernel<T>::update(&rule, 600, theta.data(), gradient.data(), nullptr, nullptr, nullptr, nullptr,
                                        nullptr, 0, dead, 600, 1) == WB_NOT_FINITE);
                CHECK(std::memcmp(before.data(), theta.data(), 600 * sizeof(T)) == 0);
            };
            theta[at] = static_cast<T>(bad);
            refused();
            theta[at] = 1, gradient[at] = static_cast<T>(bad);
            refused();
            // Finite, but the step would overflow.
            gradient[at] = std::numeric_limits<T>::max(), rule.lr = 100;
            refused();
        }
    }
    // -0.0 is active.
    std::vector<T> theta(10, T(-0.0)), gradient(10, T(0));
    wb_rule rule{};
    rule.bound = 1;
    int64_t dead[10];
    CHECK(Kernel<T>::update(&rule, 10, theta.data(), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 0, dead, 10,
                            1) == 0);
}

int main() {
    Random random(21);
    for (int round = 0; round < 300; ++round) {
        const int64_t n = round % 50 == 49 ? 70000 : random.below(2000);
        compare<float>(random, n, 2 + round % 3);
        compare<double>(random, n, 2 + round % 3);
    }
    compare<float>(random, 0, 2);
    finds_what_is_not_finite<float>();
    finds_what_is_not_finite<double>();
    std::printf("update: ok (%s)\n", wb_isa());
}
