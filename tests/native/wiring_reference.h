// A wiring as tests like it: a sorted list of positions with a value for each, rewired by the definition.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "checks.h"
#include "philox_reference.h"

struct Shape {
    std::vector<int64_t> n_in, n_out;
    int64_t layers() const { return static_cast<int64_t>(n_in.size()); }
    int64_t size(int64_t i) const { return n_in[static_cast<size_t>(i)] * n_out[static_cast<size_t>(i)]; }
    int64_t possible() const {
        int64_t sum = 0;
        for (int64_t i = 0; i < layers(); ++i) sum += size(i);
        return sum;
    }
    int64_t columns() const {
        int64_t sum = 0;
        for (int64_t n : n_in) sum += n;
        return sum;
    }
};

// The arrays that the kernels work on, from sorted positions.
struct Index {
    std::vector<int64_t> colptr;
    std::vector<int32_t> packed_rows;
};

inline Index build_index(const Shape& shape, const std::vector<int64_t>& positions, uint64_t seed, int wiring_index) {
    Index index;
    size_t at = 0;
    int64_t base = 0;
    index.colptr.push_back(0);
    for (size_t i = 0; i < shape.n_in.size(); ++i) {
        for (int64_t c = 0; c < shape.n_in[i]; ++c, base += shape.n_out[i]) {
            for (; at < positions.size() && positions[at] < base + shape.n_out[i]; ++at) {
                const int64_t row = positions[at] - base;
                const bool negative = sign_reference(seed, wiring_index, positions[at]) < 0;
                index.packed_rows.push_back(static_cast<int32_t>(row) | (negative ? INT32_MIN : 0));
            }
            index.colptr.push_back(static_cast<int64_t>(at));
        }
    }
    CHECK(at == positions.size());
    return index;
}

inline std::vector<int64_t> random_positions(Random& random, int64_t possible, int64_t count) {
    std::vector<int64_t> all(static_cast<size_t>(possible));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i)
        std::swap(all[i], all[i + static_cast<size_t>(random.below(possible - static_cast<int64_t>(i)))]);
    all.resize(static_cast<size_t>(count));
    std::sort(all.begin(), all.end());
    return all;
}

// The r-th position of [from, to) that is not among the sorted survivors.
inline int64_t dormant_at(const std::vector<int64_t>& survivors, int64_t from, int64_t rank) {
    auto it = std::lower_bound(survivors.begin(), survivors.end(), from);
    int64_t position = from + rank;
    for (; it != survivors.end() && *it <= position; ++it) ++position;
    return position;
}

inline std::vector<int64_t> layer_draw_reference(int64_t count, const std::vector<double>& shares,
                                                 const std::vector<int64_t>& room, uint64_t seed, int wiring_index,
                                                 int64_t step) {
    std::vector<int64_t> given(shares.size(), 0);
    int64_t used = 0;
    while (count > 0) {
        std::vector<double> edges;
        double sum = 0, any = 0;
        for (size_t i = 0; i < shares.size(); ++i) any += given[i] < room[i] ? shares[i] : 0;
        for (size_t i = 0; i < shares.size(); ++i)
            edges.push_back(sum += given[i] < room[i] ? (any > 0 ? shares[i] : 1.0) : 0.0);
        std::vector<int64_t> drawn(shares.size(), 0);
        for (int64_t t = 0; t < count; ++t) {
            const uint32_t stream = 4u | static_cast<uint32_t>(wiring_index) << 8;
            const double u = word_reference(seed, stream, static_cast<uint64_t>(step), used++) * 0x1p-32 * sum;
            ++drawn[static_cast<size_t>(std::upper_bound(edges.begin(), edges.end(), u) - edges.begin())];
        }
        count = 0;
        for (size_t i = 0; i < shares.size(); ++i) {
            const int64_t taken = std::min(drawn[i], room[i] - given[i]);
            given[i] += taken;
            count += drawn[i] - taken;
        }
    }
    return given;
}

// Sorted positions of the newborns.
inline std::vector<int64_t> newborns_reference(const Shape& shape, const std::vector<int64_t>& survivors, int64_t count,
                                               uint64_t seed, int wiring_index, int64_t step,
                                               const std::vector<double>* shares) {
    std::vector<int64_t> newborns;
    const uint32_t stream = 3u | static_cast<uint32_t>(wiring_index) << 8;
    const uint64_t when = static_cast<uint64_t>(step);
    if (shares == nullptr) {
        const int64_t dormant = shape.possible() - static_cast<int64_t>(survivors.size());
        for (int64_t rank : sample_reference(dormant, count, seed, stream, when))
            newborns.push_back(dormant_at(survivors, 0, rank));
        return newborns;
    }
    std::vector<int64_t> room, start;
    int64_t base = 0;
    for (int64_t i = 0; i < shape.layers(); ++i) {
        const auto first = std::lower_bound(survivors.begin(), survivors.end(), base);
        const auto last = std::lower_bound(survivors.begin(), survivors.end(), base + shape.size(i));
        room.push_back(shape.size(i) - (last - first));
        start.push_back(base);
        base += shape.size(i);
    }
    const std::vector<int64_t> given = layer_draw_reference(count, *shares, room, seed, wiring_index, step);
    for (size_t i = 0; i < given.size(); ++i) {
        const uint32_t of_layer = stream | static_cast<uint32_t>(i + 1) << 20;
        for (int64_t rank : sample_reference(room[i], given[i], seed, of_layer, when))
            newborns.push_back(dormant_at(survivors, start[i], rank));
    }
    return newborns;
}
