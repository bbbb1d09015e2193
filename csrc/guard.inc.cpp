// Whether the kernels may work with a layer. They index memory by what colptr and packed_rows say, so both are looked through
// before every pass: in the cache of what the pass reads next, a few hundredths of its time.
#pragma once

#include "layer.inc.cpp"

namespace wb::WB_ISA {

// Column pointers that never fall and hold `connections`; rows inside of the layer that rise within each column.
template <class T>
static bool index_is_good(const Layer<T>& layer, int64_t connections) {
    if (layer.n_in <= 0 || layer.n_out <= 0) return connections == 0;
    const int64_t *colptr = layer.colptr, n_in = layer.n_in, first = colptr[0];
    int falls = 0;
    for (int64_t c = 0; c < n_in; ++c) falls |= colptr[c + 1] < colptr[c];
    if (falls || static_cast<uint64_t>(colptr[n_in]) - static_cast<uint64_t>(first) != static_cast<uint64_t>(connections))
        return false;
    if (connections == 0) return true;
    const int32_t* packed_rows = layer.packed_rows;
    int32_t highest = packed_rows[0] & INT32_MAX, not_rising = 0;
    for (int64_t k = 1; k < connections; ++k) {
        const int32_t row = packed_rows[k] & INT32_MAX, before = packed_rows[k - 1] & INT32_MAX;
        highest = row > highest ? row : highest;
        not_rising += row <= before;
    }
    // Only the first connection of a column need not rise.
    for (int64_t c = 1; c < n_in; ++c) {
        const int64_t k = colptr[c] - first;
        if (colptr[c + 1] == colptr[c] || k == 0) continue;
        not_rising -= (packed_rows[k] & INT32_MAX) <= (packed_rows[k - 1] & INT32_MAX);
    }
    return highest < layer.n_out && not_rising == 0;
}

// The same for all layers of a wiring of `budget` connections; packed_rows is that of the whole wiring.
[[maybe_unused]] static int entry_wiring_is_good(int64_t budget, int64_t layers, const int64_t* n_in, const int64_t* n_out,
                                           const int64_t* colptr, const int32_t* packed_rows) {
    if (colptr[0] != 0) return 0;
    for (int64_t i = 0; i < layers; colptr += n_in[i], ++i) {
        const int64_t first = colptr[0], last = colptr[n_in[i]];
        if (first < 0 || last < first || last > budget) return 0;
        if (!index_is_good(Layer<float>{n_in[i], n_out[i], colptr, packed_rows + first, nullptr}, last - first)) return 0;
    }
    return colptr[0] == budget;
}

// Whether a theta is below 0; -0 is not.
template <class T>
static bool any_below_zero(const T* theta, int64_t count) {
    int below = 0;
    for (int64_t k = 0; k < count; ++k) below |= theta[k] < 0;
    return below != 0;
}

// What is wrong with a layer, WB_FINE if nothing is. `bound`: its theta is bound to a sign, so one below 0 is dormant.
template <class T>
static int layer_fault(const Layer<T>& layer, int64_t connections, int bound) {
    if (!index_is_good(layer, connections)) return WB_BAD_INDEX;
    return bound && any_below_zero(layer.theta, connections) ? WB_DORMANT : WB_FINE;
}

// The largest magnitude of some numbers as an integer, which orders like the number and puts infinity and NaN on top.
template <class T>
static Bits<T> largest_magnitude(const T* values, int64_t count) {
    Bits<T> largest = 0;
    for (int64_t k = 0; k < count; ++k) {
        Bits<T> bits;
        std::memcpy(&bits, values + k, sizeof bits);
        bits &= std::numeric_limits<Bits<T>>::max();
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

template <class T>
static Bits<T> magnitude_of(T value) {
    return largest_magnitude(&value, 1);
}

}  // namespace wb::WB_ISA
