// Every random number by its definition, one at a time, for the tests to compare with.
#pragma once

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

inline void philox_reference(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t seed, uint32_t* out) {
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
        c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
        c1 = static_cast<uint32_t>(p1);
        c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
        c3 = static_cast<uint32_t>(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

inline uint32_t word_reference(uint64_t seed, uint32_t stream, uint64_t step, int64_t j) {
    uint32_t out[4];
    philox_reference(static_cast<uint32_t>(j / 4), static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), stream,
                     seed, out);
    return out[j % 4];
}

// Float32 where the definition says so, double for the functions.
inline double normal_reference(uint64_t seed, uint32_t stream, uint64_t step, int64_t index) {
    const int64_t group = index / 32, output = index % 32 / 8, lane = index % 8;
    const int64_t word = 4 * (8 * group + lane) + output / 2 * 2;
    const float u1 = (static_cast<float>(word_reference(seed, stream, step, word) >> 8) + 0.5f) * 0x1p-24f;
    const double u2 = (word_reference(seed, stream, step, word + 1) >> 8) * 0x1p-24;
    const double radius = std::sqrt(-2.0 * std::log(static_cast<double>(u1)));
    const double angle = 2.0 * 3.14159265358979323846 * u2;
    return radius * (output % 2 ? std::sin(angle) : std::cos(angle));
}

inline int sign_reference(uint64_t seed, int wiring_index, int64_t position) {
    uint32_t out[4];
    philox_reference(static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0,
                     5u | static_cast<uint32_t>(wiring_index) << 8, seed, out);
    return out[0] & 1 ? -1 : 1;
}

inline std::vector<int64_t> sample_reference(int64_t n, int64_t k, uint64_t seed, uint32_t stream, uint64_t step) {
    const bool complement = k > n - k;
    std::set<int64_t> chosen;
    for (int64_t j = 0; static_cast<int64_t>(chosen.size()) < (complement ? n - k : k); ++j) {
        const uint64_t low = word_reference(seed, stream, step, 2 * j), high = word_reference(seed, stream, step, 2 * j + 1);
        chosen.insert(static_cast<int64_t>(((high << 32 | low) >> 1) % static_cast<uint64_t>(n)));
    }
    if (!complement) return {chosen.begin(), chosen.end()};
    std::vector<int64_t> rest;
    for (int64_t i = 0; i < n; ++i)
        if (chosen.count(i) == 0) rest.push_back(i);
    return rest;
}
