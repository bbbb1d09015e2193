// A whole step in one call against the update and the rewiring one after the other: the same bits.
#include <cstring>
#include <limits>

#include "wirebound.h"
#include "wiring_reference.h"

template <class T>
struct Kernel;
template <>
struct Kernel<float> {
    static constexpr auto step = wb_step_f32;
    static constexpr auto update = wb_update_f32;
};
template <>
struct Kernel<double> {
    static constexpr auto step = wb_step_f64;
    static constexpr auto update = wb_update_f64;
};

template <class T>
struct Arrays {
    Index index;
    std::vector<T> theta, moment1, moment2;
    std::vector<int32_t> birth;

    bool operator==(const Arrays& other) const {
        return index.colptr == other.index.colptr && index.packed_rows == other.index.packed_rows && theta == other.theta &&
               moment1 == other.moment1 && moment2 == other.moment2 && birth == other.birth;
    }
    std::vector<wb_carried> carried(int64_t step) {
        const int64_t size = sizeof(T);
        return {{theta.data(), size, 0}, {moment1.data(), size, 0}, {moment2.data(), size, 0}, {birth.data(), 4, step}};
    }
};

static Shape random_shape(Random& random) {
    Shape shape;
    for (int64_t i = 1 + random.below(3); i > 0; --i) {
        shape.n_in.push_back(1 + random.below(40));
        shape.n_out.push_back(1 + random.below(40));
    }
    return shape;
}

template <class T>
static void compare(Random& random, const Shape& shape, int64_t budget, int64_t step, bool lost) {
    const int64_t layers = shape.layers();
    wb_rule rule{};
    rule.kind = static_cast<int32_t>(random.below(3));
    rule.bound = 1;
    rule.clamp = random.below(4) == 0;
    rule.step = rule.clock = step;
    rule.seed = random.next() >> 1;
    const int32_t wiring_index = static_cast<int32_t>(random.below(3));
    rule.stream = 2u | static_cast<uint32_t>(wiring_index) << 8;
    rule.lr = 0.1, rule.momentum = 0.9, rule.beta1 = 0.9, rule.beta2 = 0.99, rule.eps = 1e-3;
    Arrays<T> one;
    one.index = build_index(shape, random_positions(random, shape.possible(), budget), rule.seed, wiring_index);
    std::vector<T> gradient;
    for (int64_t k = 0; k < budget; ++k) {
        one.theta.push_back(static_cast<T>(random.uniform()));
        one.moment1.push_back(static_cast<T>(random.signed_uniform()));
        one.moment2.push_back(static_cast<T>(random.uniform()));
        one.birth.push_back(static_cast<int32_t>(random.below(step)));
        gradient.push_back(static_cast<T>(random.signed_uniform()));
    }
    if (lost) one.theta[static_cast<size_t>(random.below(budget))] = std::numeric_limits<T>::quiet_NaN();
    const wb_drift_and_noise drift{0, budget, 0.3 * random.uniform(), 0.1 * random.uniform(), 1.0, 1.0, 0.0, 0, 0};
    std::vector<double> shares;
    for (int64_t i = 0; i < layers; ++i) shares.push_back(0.1 + random.uniform());
    const double* by_share = random.below(2) ? shares.data() : nullptr;
    const int threads = 1 + static_cast<int>(random.below(2));
    Arrays<T> two = one;
    const size_t count = static_cast<size_t>(layers);
    std::vector<int64_t> born(count, -1), died(count, -1), active(count, -1), right_born(count, 0), right_died(count, 0);

    const std::vector<wb_carried> carried = one.carried(step);
    const wb_step task{rule, budget, layers, shape.n_in.data(), shape.n_out.data(), one.index.colptr.data(),
                       one.index.packed_rows.data(), one.theta.data(), gradient.data(), one.moment1.data(), one.moment2.data(),
                       nullptr, one.birth.data(), &drift, 1, carried.data(), 4, by_share, born.data(), died.data(),
                       active.data(), nullptr, nullptr, wiring_index};
    const int64_t replaced = Kernel<T>::step(&task, threads);

    std::vector<int64_t> dead(static_cast<size_t>(budget));
    const Arrays<T> before = two;
    const int64_t found =
        Kernel<T>::update(&rule, budget, two.theta.data(), gradient.data(), two.moment1.data(), two.moment2.data(),
                          nullptr, two.birth.data(), &drift, 1, dead.data(), budget, threads);
    CHECK((found == WB_NOT_FINITE) == lost);
    CHECK(replaced == found);
    if (lost) {  // nothing was touched; NaN is not equal to itself, so bytes are compared
        CHECK(std::memcmp(one.theta.data(), before.theta.data(), one.theta.size() * sizeof(T)) == 0);
        CHECK(one.moment1 == before.moment1 && one.moment2 == before.moment2 && one.index.packed_rows == before.index.packed_rows);
        return;
    }
    const std::vector<wb_carried> right = two.carried(step);
    wb_rewire(budget, layers, shape.n_in.data(), shape.n_out.data(), two.index.colptr.data(), two.index.packed_rows.data(),
              right.data(), 4, dead.data(), found, rule.seed, wiring_index, step, by_share, right_born.data(),
              right_died.data(), threads);
    CHECK(one == two);
    CHECK(born == right_born && died == right_died);
    int64_t all = 0;
    for (int64_t here : active) all += here;
    CHECK(all == budget);
}

int main() {
    Random random(23);
    for (int64_t round = 0; round < 1500; ++round) {
        const Shape shape = random_shape(random);
        compare<float>(random, shape, 1 + random.below(shape.possible()), 1 + random.below(500), random.below(20) == 0);
        compare<double>(random, shape, 1 + random.below(shape.possible()), 1 + random.below(500), random.below(20) == 0);
    }
    // So large that the step marks its dead instead of listing them.
    const Shape large{{1300, 700}, {1000, 40}};
    compare<float>(random, large, 1100000, 3, false);
    compare<double>(random, large, 1100000, 3, false);
    std::printf("step: ok (%s)\n", wb_isa());
}
