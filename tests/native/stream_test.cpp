// Rewiring by streaming against rewiring by lists: the same bits, for small wirings of every density, and for one so
// large that the library streams by itself. The kernels' source is part of this file, because small wirings never stream.
#define WB_ISA listed
#include "isa.h"

#pragma GCC diagnostic ignored "-Wunused-function"
#include "random.inc.cpp"
#include "rewire.inc.cpp"
#include "update.inc.cpp"

#include "wiring_reference.h"

struct Wiring {
    Index index;
    std::vector<int32_t> columns, birth;
    std::vector<float> theta;
    std::vector<double> moment;
    std::vector<int8_t> bytes;
    std::vector<int16_t> halves;
    std::vector<int64_t> born, died;

    bool operator==(const Wiring& other) const {
        return index.colptr == other.index.colptr && index.packed_rows == other.index.packed_rows && columns == other.columns &&
               birth == other.birth && theta == other.theta && moment == other.moment && bytes == other.bytes &&
               halves == other.halves && born == other.born && died == other.died;
    }
    std::vector<wb_carried> carried(int64_t step) {
        return {{theta.data(), 4, 0}, {moment.data(), 8, 0}, {birth.data(), 4, step}, {bytes.data(), 1, 0},
                {halves.data(), 2, 0}};
    }
};

static Wiring random_wiring(Random& random, const Shape& shape, int64_t budget, uint64_t seed, int wiring_index) {
    Wiring wiring;
    wiring.index = build_index(shape, random_positions(random, shape.possible(), budget), seed, wiring_index);
    for (size_t c = 0; c + 1 < wiring.index.colptr.size(); ++c)
        wiring.columns.resize(static_cast<size_t>(wiring.index.colptr[c + 1]), static_cast<int32_t>(c));
    for (int64_t k = 0; k < budget; ++k) {
        wiring.theta.push_back(static_cast<float>(random.uniform()));
        wiring.moment.push_back(random.uniform());
        wiring.birth.push_back(static_cast<int32_t>(random.below(100)));
        wiring.bytes.push_back(static_cast<int8_t>(random.below(256)));
        wiring.halves.push_back(static_cast<int16_t>(random.below(65536)));
    }
    wiring.born.assign(shape.n_in.size(), -1);
    wiring.died = wiring.born;
    return wiring;
}

static void compare(Random& random, const Shape& shape, int64_t budget, int64_t deaths, bool by_share) {
    using namespace wb::listed;
    const uint64_t seed = random.next();
    const int wiring_index = static_cast<int>(random.below(5));
    const int64_t step = 1 + random.below(1000);
    Wiring listed = random_wiring(random, shape, budget, seed, wiring_index);
    const std::vector<int64_t> dead = random_positions(random, budget, deaths);
    for (int64_t k : dead) listed.theta[static_cast<size_t>(k)] -= 1.5f;
    Wiring streamed = listed, by_theta = listed, by_library = listed;
    std::vector<double> shares;
    for (int64_t i = 0; i < shape.layers(); ++i) shares.push_back(random.below(4) == 0 ? 0.0 : random.uniform());

    const auto task = [&](Wiring& wiring, const std::vector<wb_carried>& carried, int64_t most) {
        return RewireTask{budget, shape.layers(), shape.n_in.data(), shape.n_out.data(), wiring.index.colptr.data(),
                          wiring.index.packed_rows.data(), carried.data(), 5, wiring.columns.data(), seed, wiring_index, step,
                          by_share ? shares.data() : nullptr, most};
    };
    RewireScratch scratch;
    const std::vector<wb_carried> one = listed.carried(step), two = streamed.carried(step), three = by_theta.carried(step);
    rewire_wiring(task(listed, one, budget), dead.data(), deaths, listed.born.data(), listed.died.data(), 1, scratch);
    const int threads = 1 + static_cast<int>(random.below(2));
    rewire_wiring(task(streamed, two, 0), dead.data(), deaths, streamed.born.data(), streamed.died.data(), threads, scratch);
    CHECK(streamed == listed);
    if (deaths > 0) {
        mark_negative(task(by_theta, three, 0), by_theta.theta.data(), scratch);
        rewire_by_streaming(task(by_theta, three, 0), deaths, by_theta.born.data(), by_theta.died.data(), threads, scratch);
        CHECK(by_theta == listed);
    }
    const std::vector<wb_carried> four = by_library.carried(step);
    wb_rewire(budget, shape.layers(), shape.n_in.data(), shape.n_out.data(), by_library.index.colptr.data(),
              by_library.index.packed_rows.data(), four.data(), 5, dead.data(), deaths, seed, wiring_index, step,
              by_share ? shares.data() : nullptr, by_library.born.data(), by_library.died.data(), threads);
    by_library.columns = listed.columns;  // which the library is not given
    CHECK(by_library == listed);
}

static void random_wirings() {
    Random random(31);
    for (int round = 0; round < 3000; ++round) {
        Shape shape;
        const int64_t layers = 1 + random.below(4);
        for (int64_t i = 0; i < layers; ++i) {
            // Now and then a layer without columns or rows; now and then more connections than a word of marks has bits.
            shape.n_in.push_back(random.below(20) == 0 ? 0 : 1 + random.below(20));
            shape.n_out.push_back(random.below(20) == 0 ? 0 : 1 + random.below(30));
        }
        const int64_t possible = shape.possible();
        int64_t budget = random.below(possible + 1);
        if (round % 7 == 0) budget = possible;
        if (round % 11 == 0) budget = std::min<int64_t>(possible, 3);
        if (round % 13 == 0) budget = possible / 64 * 64;
        int64_t deaths = random.below(budget + 1);
        if (round % 5 == 0) deaths = budget;
        if (round % 3 == 0) deaths = std::min<int64_t>(budget, 1 + random.below(3));
        compare(random, shape, budget, deaths, round % 2 == 1);
    }
}

int main() {
    random_wirings();
    Random random(32);
    const Shape shape{{1500, 700}, {1000, 40}};
    compare(random, shape, 1100000, 400000, false);
    compare(random, shape, 1100000, 30000, true);
    std::printf("stream: ok (%s)\n", wb_isa());
}
