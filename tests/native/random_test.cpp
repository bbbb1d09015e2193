// Philox against its published answers and a scalar version, normals against libm, samples against a set.
#include <algorithm>
#include <set>
#include <vector>

#include "checks.h"
#include "philox_reference.h"
#include "wirebound.h"

static void known_answers() {
    // Counter 0, key 0; then all ones, which the block counter of a stream cannot reach, so only the reference.
    uint32_t out[4];
    philox_reference(0, 0, 0, 0, 0, out);
    CHECK(out[0] == 0x6627e8d5 && out[1] == 0xe169c58d && out[2] == 0xbc57ac4c && out[3] == 0x9b00dbd8);
    philox_reference(~0u, ~0u, ~0u, ~0u, ~0ull, out);
    CHECK(out[0] == 0x408f276d && out[1] == 0x41c83b0e && out[2] == 0xa20bc7c6 && out[3] == 0x6d5451fd);
    uint32_t words[4];
    wb_words(0, 0, 0, 4, words);
    CHECK(words[0] == 0x6627e8d5 && words[1] == 0xe169c58d && words[2] == 0xbc57ac4c && words[3] == 0x9b00dbd8);
}

static void words_follow_the_reference() {
    Random random(1);
    for (int round = 0; round < 50; ++round) {
        const uint64_t seed = random.next(), step = round % 2 ? random.next() : static_cast<uint64_t>(round);
        const uint32_t stream = static_cast<uint32_t>(random.next());
        const int64_t n = random.below(300);
        std::vector<uint32_t> out(static_cast<size_t>(n));
        wb_words(seed, stream, step, n, out.data());
        for (int64_t j = 0; j < n; ++j) CHECK(out[static_cast<size_t>(j)] == word_reference(seed, stream, step, j));
    }
}

static void normals_follow_libm() {
    Random random(2);
    double sum = 0, squares = 0, worst = 0;
    int64_t total = 0;
    for (int round = 0; round < 200; ++round) {
        const uint64_t seed = random.next(), step = static_cast<uint64_t>(random.below(1000));
        const int64_t first = random.below(100000), n = random.below(2000);
        std::vector<float> out(static_cast<size_t>(n));
        wb_normals(seed, 2, step, first, n, out.data());
        for (int64_t i = 0; i < n; ++i) {
            const double expected = normal_reference(seed, 2, step, first + i), got = out[static_cast<size_t>(i)];
            worst = std::max(worst, std::fabs(got - expected) / std::max(std::fabs(expected), 1e-30));
            sum += got;
            squares += got * got;
            ++total;
        }
    }
    CHECK(worst < 1e-6);
    CHECK(std::fabs(sum / static_cast<double>(total)) < 0.01);
    CHECK(std::fabs(squares / static_cast<double>(total) - 1) < 0.01);
}

static void signs_follow_the_reference() {
    Random random(3);
    for (int64_t n : {0, 1, 7, 8, 9, 100}) {
        std::vector<int64_t> positions(static_cast<size_t>(n));
        for (auto& p : positions) p = random.below(int64_t{1} << 62);
        std::vector<int8_t> out(static_cast<size_t>(n));
        const uint64_t seed = random.next();
        wb_signs(seed, 5 | 3 << 8, positions.data(), n, out.data());
        for (size_t i = 0; i < out.size(); ++i) CHECK(out[i] == sign_reference(seed, 3, positions[i]));
    }
}

static void samples_are_the_first_distinct_ones() {
    Random random(4);
    for (int round = 0; round < 2000; ++round) {
        const int64_t n = round % 3 == 0 ? random.below(int64_t{1} << 62) + 300 : 1 + random.below(300);
        const int64_t k = random.below(std::min<int64_t>(n, 300) + 1);
        const uint64_t seed = random.next(), step = random.next() % 100;
        std::vector<int64_t> out(static_cast<size_t>(k));
        wb_sample_sorted(n, k, seed, 3, step, out.data());
        CHECK(out == sample_reference(n, k, seed, 3, step));
    }
    int64_t one = -1;
    wb_sample_sorted(1, 1, 9, 3, 1, &one);
    CHECK(one == 0);
}

static void large_samples_are_sorted_and_distinct() {
    const int64_t sizes[][2] = {{100000, 49000},  // nearly half: many draws meet a number twice
                                {200000, 90000},  // so many that they are sorted in parts
                                {int64_t{1} << 40, 70000}};
    for (const auto& [n, k] : sizes) {
        std::vector<int64_t> out(static_cast<size_t>(k));
        wb_sample_sorted(n, k, 5, 0, 0, out.data());
        CHECK(out == sample_reference(n, k, 5, 0, 0));
    }
}

int main() {
    known_answers();
    words_follow_the_reference();
    normals_follow_libm();
    signs_follow_the_reference();
    samples_are_the_first_distinct_ones();
    large_samples_are_sorted_and_distinct();
    std::printf("random: ok (%s)\n", wb_isa());
}
