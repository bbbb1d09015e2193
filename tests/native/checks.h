// What the native tests share: a check that says where it failed, a small generator, and tolerant comparison.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            std::printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);      \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

#define CHECK_CLOSE(a, b, tolerance)                                                                                 \
    do {                                                                                                             \
        const double left = (a), right = (b);                                                                        \
        if (!(std::fabs(left - right) <= (tolerance) * (1.0 + std::fabs(right)))) {                                  \
            std::printf("%s:%d: %s = %.9g, %s = %.9g\n", __FILE__, __LINE__, #a, left, #b, right);                   \
            std::exit(1);                                                                                            \
        }                                                                                                            \
    } while (0)

// splitmix64: enough for test data, and the same everywhere.
struct Random {
    uint64_t state;
    explicit Random(uint64_t seed) : state(seed) {}
    uint64_t next() {
        uint64_t z = (state += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
    double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
    double signed_uniform() { return 2.0 * uniform() - 1.0; }
};
