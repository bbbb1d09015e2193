// Rewiring when many connections are replaced at once: every array closes up without the dead, and opens again where
// newborns come to stand.
//
// The other way (rewire.inc.cpp) pays for each event, this one a little for each connection and less for each event,
// with scratch memory as long as a few arrays of the wiring. In a small network a tenth of the connections may be
// replaced in a step: all is in the cache then, and what costs time is a branch that cannot be guessed. So there is none
// for an event.
//
// By the rank formula, a newborn of rank r stands behind the survivors i of its layer with position_i - i <= r.
#pragma once

#include "layer.inc.cpp"
#include "rewire_marks.inc.cpp"
#include "rewire_place.inc.cpp"

namespace wb::WB_ISA {

constexpr int64_t kMergeBudget = int64_t{1} << 20;  // above, the scratch would be worth saving

static bool worth_merging(const RewireTask& task, int64_t n_dead, int64_t columns) {
    return task.budget <= kMergeBudget && n_dead * 256 > task.budget + columns;
}

// How many died in each layer, by the column pointers of before.
static void count_dead(const RewireTask& task, const int64_t* dead, int64_t n_dead, int64_t* died,
                       const RewireScratch& scratch) {
    int64_t t = 0;
    for (int64_t i = 0; i < task.layers; ++i) {
        const RewireLayer& layer = scratch.layers[static_cast<size_t>(i)];
        const int64_t end = task.colptr[layer.first_column + layer.n_in], first = t;
        t = std::lower_bound(dead + t, dead + n_dead, end) - dead;
        died[i] = t - first;
    }
}

// The column of each connection of the wiring, where the caller does not keep it.
static int32_t* columns_of(const RewireTask& task, RewireScratch& scratch) {
    if (task.columns) return task.columns;
    scratch.columns.resize(static_cast<size_t>(task.budget) + 8);
    const RewireLayer& last = scratch.layers.back();
    write_columns(task.colptr, last.first_column + last.n_in, scratch.columns.data());
    return scratch.columns.data();
}

// Keeps a number out of vectors: GCC would gather those of several searches in one, which takes longer than the searches.
template <class Pointer>
WB_INLINE void keep_scalar(Pointer& pointer) {
    __asm__("" : "+r"(pointer));
}

WB_INLINE int64_t sum_of(Vec<int32_t, 32> v) {
    const Vec<int32_t, 8> pair = fold<int32_t, 16>(fold<int32_t, 32>(v));
    return pair[0] + pair[1];
}
WB_INLINE int64_t sum_of(Vec<int64_t, 32> v) { return v[0] + v[1] + v[2] + v[3]; }

// How many of n sorted keys are at most each of some ranks: searches without a branch, side by side, down to a stretch
// whose keys are compared all at once. As many keys follow the last, all above any rank.
constexpr int kSearches = 8;
constexpr int64_t kStretch = 32;
template <class Key>
WB_INLINE void count_up_to(const Key* keys, int64_t n, const Key* ranks, int64_t* counts) {
    const Key* at[kSearches];
    for (int i = 0; i < kSearches; ++i) at[i] = keys;
    int64_t length = n;
    while (length > kStretch) {
        const int64_t half = length / 2;
#pragma GCC unroll 8
        for (int i = 0; i < kSearches; ++i) {
            at[i] += half & -static_cast<int64_t>(at[i][half - 1] <= ranks[i]);
            keep_scalar(at[i]);
        }
        length -= half;
    }
    constexpr int64_t kLanes = 32 / sizeof(Key);
    for (int i = 0; i < kSearches; ++i) {
        Vec<Key, 32> above{};  // less the number of keys above the rank
        for (int64_t j = 0; j < kStretch; j += kLanes) above += load<Key, 32>(at[i] + j) > ranks[i];
        counts[i] = at[i] - keys + kStretch + sum_of(above);
    }
}

// How many of a layer's survivors stand before each of its newborns. The key of a survivor is its position in the layer
// less the survivors before it: keys never fall.
template <class Key>
static void find_places(const RewireLayer& layer, const int32_t* columns, const int32_t* packed_rows, int64_t survivors,
                        const int64_t* ranks, int64_t n_born, int64_t* places, RewireScratch& scratch) {
    scratch.keys.resize(static_cast<size_t>(survivors + kStretch) * sizeof(Key) / sizeof(int64_t) + 1);
    Key* keys = reinterpret_cast<Key*>(scratch.keys.data());
    const Key height = static_cast<Key>(layer.n_out);
    const int32_t first_column = static_cast<int32_t>(layer.first_column);
    for (int64_t i = 0; i < survivors; ++i)
        keys[i] = static_cast<Key>(columns[i] - first_column) * height + static_cast<Key>(packed_rows[i] & INT32_MAX) -
                  static_cast<Key>(i);
    for (int64_t i = 0; i < kStretch; ++i) keys[survivors + i] = std::numeric_limits<Key>::max();
    for (int64_t t = 0; t < n_born; t += kSearches) {
        Key wanted[kSearches];
        for (int64_t i = 0; i < kSearches; ++i) wanted[i] = static_cast<Key>(ranks[std::min(t + i, n_born - 1)]);
        count_up_to(keys, survivors, wanted, places + t);
    }
}

// Column and row of a layer's newborns from their positions within it.
static void locate_newborns(const RewireLayer& layer, const int64_t* positions, int64_t count, int32_t* columns,
                            int32_t* rows) {
    const double per_row = 1.0 / static_cast<double>(layer.n_out);
    const bool exact = layer.n_in * layer.n_out < int64_t{1} << 52;  // positions are doubles without rounding
    for (int64_t t = 0; t < count; ++t) {
        // A product instead of a division, which takes ten times as long; it may be off by one.
        const int64_t local = positions[t] - layer.first_position;
        int64_t column = exact ? static_cast<int64_t>(static_cast<double>(local) * per_row) : local / layer.n_out;
        int64_t row = local - column * layer.n_out;
        const int64_t off = (row >= layer.n_out) - (row < 0);
        column += off;
        row -= off * layer.n_out;
        columns[t] = static_cast<int32_t>(layer.first_column + column);
        rows[t] = static_cast<int32_t>(row);
    }
}

// Replaces the dead, once the ranks are drawn.
static void rewire_by_merging(const RewireTask& task, const int64_t* dead, int64_t n_dead, const int64_t* born,
                              const int64_t* died, int threads, RewireScratch& scratch) {
    int32_t* columns = columns_of(task, scratch);
    const RewireLayer& last = scratch.layers.back();
    const int64_t n_columns = last.first_column + last.n_in;
    scratch.change.assign(static_cast<size_t>(n_columns), 0);
    int32_t* change = scratch.change.data();
    for (int64_t t = 0; t < n_dead; ++t) --change[columns[dead[t]]];
    mark_listed(task, dead, n_dead, scratch);
    leave_out_of_all(task, threads, scratch);
    if (!task.columns) leave_out_marked(columns, task.budget, scratch.marks.data());

    const size_t room = static_cast<size_t>(n_dead) + kSignsAtOnce;
    scratch.places.resize(room + kSearches);
    scratch.positions.resize(room);
    scratch.rows.resize(room);
    scratch.newborn_columns.resize(room);
    int64_t *places = scratch.places.data(), *positions = scratch.positions.data();
    int64_t t = 0, first = 0;  // newborn and survivor
    for (int64_t l = 0; l < task.layers; ++l) {
        const RewireLayer& layer = scratch.layers[static_cast<size_t>(l)];
        const int64_t* ranks = scratch.ranks.data() + t;
        const int64_t survivors = task.colptr[layer.first_column + layer.n_in] - task.colptr[layer.first_column] - died[l];
        if (born[l] > 0) {
            const bool narrow = layer.n_in * layer.n_out < INT32_MAX;
            const auto find = narrow ? find_places<int32_t> : find_places<int64_t>;
            find(layer, columns + first, task.packed_rows + first, survivors, ranks, born[l], places + t, scratch);
            for (int64_t i = 0; i < born[l]; ++i) {
                positions[t + i] = layer.first_position + ranks[i] + places[t + i];
                places[t + i] += first + t + i;  // among all connections of the new order
            }
            locate_newborns(layer, positions + t, born[l], scratch.newborn_columns.data() + t, scratch.rows.data() + t);
        }
        t += born[l];
        first += survivors;
    }
    mark_listed(task, places, n_dead, scratch);
    open_all(task, n_dead, threads, scratch);
    const int64_t* signs = newborn_signs(task, n_dead, scratch);
    for (int64_t i = 0; i < n_dead; ++i) {
        const int32_t column = scratch.newborn_columns.data()[i];
        task.packed_rows[places[i]] = scratch.rows.data()[i] | static_cast<int32_t>(signs[i]);
        if (task.columns) task.columns[places[i]] = column;
        ++change[column];
    }
    int64_t sum = 0, c = 0;
    for (; c + 4 <= n_columns; c += 4) {  // sums of four do not wait for the four before
        const int64_t one = change[c], two = one + change[c + 1], three = two + change[c + 2], four = three + change[c + 3];
        int64_t* pointer = task.colptr + c + 1;
        pointer[0] += sum + one;
        pointer[1] += sum + two;
        pointer[2] += sum + three;
        pointer[3] += sum += four;
    }
    for (; c < n_columns; ++c) task.colptr[c + 1] += sum += change[c];
}

}  // namespace wb::WB_ISA
