// What a rewiring works on, and the memory that it needs meanwhile.
#pragma once

#include "simd.h"

namespace wb::WB_ISA {

struct RewireLayer {
    int64_t n_in, n_out;
    int64_t first_column, first_position;
};

struct Newborn {
    int64_t column;  // among the columns of all layers
    int64_t place;   // index, in the old order, of the connection that follows it
    int64_t target;  // index in the new order
    int32_t packed_rows;
};

struct Segment {
    int64_t begin, end, shift;
};

// Everything a rewiring needs besides the wiring; kept between calls by whoever rewires often.
struct RewireScratch {
    std::vector<RewireLayer> layers;
    std::vector<int64_t> dead_columns, ranks, positions, dormant;
    std::vector<Newborn> newborns;
    std::vector<Segment> left, right;
    std::vector<int64_t> keys, places, signs, below, open_before;
    std::vector<int32_t> columns, change, rows, newborn_columns;
    std::vector<uint64_t> marks, bounds;
    std::vector<double> edges;
    std::vector<wb_carried> arrays;

    // To be called after a rewiring: memory that one step needed may be what others lack.
    void give_back_large() {
        give_back_if_large(dead_columns, ranks, positions, newborns, left, right, keys, places, signs, columns, change,
                           rows, newborn_columns, marks, open_before);
    }
};

// Makes room without a pass over it: a vector that shrinks and grows again fills itself with zeros.
template <class Element>
static Element* room_for(std::vector<Element>& vector, int64_t count) {
    if (static_cast<int64_t>(vector.size()) < count) vector.resize(static_cast<size_t>(count));
    return vector.data();
}

struct RewireTask {
    int64_t budget, layers;
    const int64_t *n_in, *n_out;
    int64_t* colptr;
    int32_t* packed_rows;
    const wb_carried* carried;
    int64_t n_carried;
    int32_t* columns;  // a moved that holds each connection's column, or null
    uint64_t seed;
    int32_t wiring_index;
    int64_t step;
    const double* shares;
    int64_t most_listed;  // with more dead than this, the rewiring is one that needs no list of them
    const int64_t* open_columns = nullptr;  // to which newborns may come, as in wb_step; null: to all
    const int64_t* open_counts = nullptr;
};

}  // namespace wb::WB_ISA
