// Rewiring against the definition on random wirings, at every density, and its exactness on huge layers.
#include <map>

#include "wirebound.h"
#include "wiring_reference.h"

struct State {
    float theta;
    double moment;
    int32_t born;
};

static void compare(Random& random, const Shape& shape, int64_t budget, int64_t deaths, bool by_share) {
    const uint64_t seed = random.next();
    const int wiring_index = static_cast<int>(random.below(5));
    const int64_t step = 1 + random.below(1000);
    const std::vector<int64_t> positions = random_positions(random, shape.possible(), budget);
    const std::vector<int64_t> dead = random_positions(random, budget, deaths);
    const size_t layers = static_cast<size_t>(shape.layers());

    Index index = build_index(shape, positions, seed, wiring_index);
    std::vector<float> theta;
    std::vector<double> moment;
    std::vector<int32_t> born_at;
    std::map<int64_t, State> expected;
    for (int64_t p : positions) {
        theta.push_back(static_cast<float>(1 + random.uniform()));
        moment.push_back(random.uniform());
        born_at.push_back(static_cast<int32_t>(random.below(100)));
        expected[p] = State{theta.back(), moment.back(), born_at.back()};
    }
    std::vector<int64_t> survivors, died(layers, 0), born(layers, 0);
    const auto layer_of = [&](int64_t position) {
        size_t i = 0;
        for (int64_t end = shape.size(0); position >= end; end += shape.size(static_cast<int64_t>(i))) ++i;
        return i;
    };
    for (size_t k = 0; k < positions.size(); ++k) {
        if (std::binary_search(dead.begin(), dead.end(), static_cast<int64_t>(k))) {
            expected.erase(positions[k]);
            ++died[layer_of(positions[k])];
        } else {
            survivors.push_back(positions[k]);
        }
    }
    std::vector<double> shares;
    for (size_t i = 0; i < layers; ++i) shares.push_back(random.below(4) == 0 ? 0.0 : random.uniform());
    for (int64_t p : newborns_reference(shape, survivors, deaths, seed, wiring_index, step, by_share ? &shares : nullptr)) {
        CHECK(expected.count(p) == 0);
        expected[p] = State{0, 0, static_cast<int32_t>(step)};
        ++born[layer_of(p)];
    }

    std::vector<int8_t> bytes;
    std::vector<int16_t> halves;
    for (float value : theta) {
        bytes.push_back(static_cast<int8_t>(100 * value));
        halves.push_back(static_cast<int16_t>(10000 * value));
    }
    const wb_carried carried[] = {{theta.data(), 4, 0}, {moment.data(), 8, 0}, {born_at.data(), 4, step},
                               {bytes.data(), 1, 0}, {halves.data(), 2, 0}};
    std::vector<int64_t> got_born(layers, -1), got_died(layers, -1);
    wb_rewire(budget, shape.layers(), shape.n_in.data(), shape.n_out.data(), index.colptr.data(), index.packed_rows.data(), carried,
              5, dead.data(), deaths, seed, wiring_index, step, by_share ? shares.data() : nullptr, got_born.data(),
              got_died.data(), 1 + static_cast<int>(random.below(2)));

    CHECK(got_born == born);
    CHECK(got_died == died);
    std::vector<int64_t> after;
    for (const auto& item : expected) after.push_back(item.first);
    const Index right = build_index(shape, after, seed, wiring_index);
    CHECK(index.colptr == right.colptr);
    CHECK(index.packed_rows == right.packed_rows);
    size_t k = 0;
    for (const auto& item : expected) {
        CHECK(theta[k] == item.second.theta && moment[k] == item.second.moment && born_at[k] == item.second.born);
        CHECK(bytes[k] == static_cast<int8_t>(100 * theta[k]) && halves[k] == static_cast<int16_t>(10000 * theta[k]));
        ++k;
    }
}

static void random_wirings() {
    Random random(11);
    for (int round = 0; round < 3000; ++round) {
        Shape shape;
        const int64_t layers = 1 + random.below(4);
        for (int64_t i = 0; i < layers; ++i) {
            // Now and then a layer without columns or rows.
            shape.n_in.push_back(random.below(20) == 0 ? 0 : 1 + random.below(12));
            shape.n_out.push_back(random.below(20) == 0 ? 0 : 1 + random.below(12));
        }
        const int64_t possible = shape.possible();
        int64_t budget = random.below(possible + 1);
        if (round % 7 == 0) budget = possible;
        if (round % 11 == 0) budget = std::min<int64_t>(possible, 3);
        int64_t deaths = random.below(budget + 1);
        if (round % 5 == 0) deaths = budget;
        if (round % 3 == 0) deaths = std::min<int64_t>(budget, 1 + random.below(3));
        compare(random, shape, budget, deaths, round % 2 == 1);
    }
}

static void larger_wirings() {
    Random random(12);
    for (int round = 0; round < 6; ++round) {
        const Shape shape{{300, 200}, {250, 40}};
        compare(random, shape, 20000, round < 3 ? 20 : 15000, round % 2 == 0);
    }
    compare(random, Shape{{700}, {700}}, 410000, 300, false);  // large enough for threads
}

// A single dead connection of a full wiring is the only dormant one: it is born again where it was.
static void reborn_in_place() {
    const Shape shape{{3}, {2}};
    std::vector<int64_t> positions = {0, 1, 2, 3, 4, 5};
    Index index = build_index(shape, positions, 7, 0);
    index.packed_rows[3] ^= INT32_MIN;  // not its constant sign: a wiring may start so
    const int32_t constant = build_index(shape, positions, 7, 0).packed_rows[3];
    std::vector<float> theta = {1, 2, 3, -1, 5, 6};
    const wb_carried moved{theta.data(), 4, 0};
    const int64_t dead = 3;
    int64_t born, died;
    wb_rewire(6, 1, shape.n_in.data(), shape.n_out.data(), index.colptr.data(), index.packed_rows.data(), &moved, 1, &dead, 1, 7, 0,
              1, nullptr, &born, &died, 1);
    CHECK(born == 1 && died == 1 && index.packed_rows[3] == constant);
    CHECK((theta == std::vector<float>{1, 2, 3, 0, 5, 6}));
}

// Close to 2^62 positions: ranks must not lose a bit.
static void huge_layer() {
    const int64_t n_in = (int64_t{1} << 31) / 1024, n_out = (int64_t{1} << 31) - 1;
    std::vector<int64_t> colptr(static_cast<size_t>(n_in + 1), 0);
    std::vector<int32_t> packed_rows;
    std::vector<float> theta;
    std::vector<int64_t> positions;
    for (int64_t c = 0; c < n_in; ++c) {
        if (c % 100000 == 5) {
            for (int64_t row : {int64_t{0}, int64_t{1}, n_out - 1}) {
                const int64_t p = c * n_out + row;
                positions.push_back(p);
                packed_rows.push_back(static_cast<int32_t>(row) | (sign_reference(3, 1, p) < 0 ? INT32_MIN : 0));
                theta.push_back(1);
            }
        }
        colptr[static_cast<size_t>(c + 1)] = static_cast<int64_t>(packed_rows.size());
    }
    const int64_t budget = static_cast<int64_t>(packed_rows.size());
    const std::vector<int64_t> dead = {0, 4, 5, 6, budget - 1};
    std::vector<int64_t> survivors;
    for (int64_t k = 0; k < budget; ++k)
        if (!std::binary_search(dead.begin(), dead.end(), k)) survivors.push_back(positions[static_cast<size_t>(k)]);
    const Shape shape{{n_in}, {n_out}};
    std::vector<int64_t> expected = newborns_reference(shape, survivors, 5, 3, 1, 9, nullptr);
    expected.insert(expected.end(), survivors.begin(), survivors.end());
    std::sort(expected.begin(), expected.end());
    const wb_carried moved{theta.data(), 4, 0};
    int64_t born, died;
    wb_rewire(budget, 1, &n_in, &n_out, colptr.data(), packed_rows.data(), &moved, 1, dead.data(), 5, 3, 1, 9, nullptr, &born, &died,
              1);
    std::vector<int64_t> got;
    for (int64_t c = 0; c < n_in; ++c)
        for (int64_t k = colptr[static_cast<size_t>(c)]; k < colptr[static_cast<size_t>(c + 1)]; ++k)
            got.push_back(c * n_out + (packed_rows[static_cast<size_t>(k)] & 0x7fffffff));
    CHECK(got == expected);
}

int main() {
    random_wirings();
    larger_wirings();
    reborn_in_place();
    huge_layer();
    std::printf("rewire: ok (%s)\n", wb_isa());
}
