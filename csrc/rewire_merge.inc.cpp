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
#include "rank_tree.inc.cpp"
#include "rewire_marks.inc.cpp"
#include "rewire_place.inc.cpp"
#include "running_sums.inc.cpp"

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

// How many of a layer's survivors stand before each of its newborns. The key of a survivor is its position in the layer
// less the survivors before it: keys never fall.
template <class Key>
static void find_places(const RewireLayer& layer, const int32_t* columns, const int32_t* packed_rows, int64_t survivors,
                        const int64_t* ranks, int64_t n_born, int64_t* places, RewireScratch& scratch) {
    const int64_t bytes = RankTree<Key>::size(survivors) * static_cast<int64_t>(sizeof(Key));
    Key* keys = reinterpret_cast<Key*>(room_for(scratch.keys, bytes / static_cast<int64_t>(sizeof(int64_t))));
    const Key height = static_cast<Key>(layer.n_out);
    const int32_t first_column = static_cast<int32_t>(layer.first_column);
    for (int64_t i = 0; i < survivors; ++i)
        keys[i] = static_cast<Key>(columns[i] - first_column) * height + static_cast<Key>(packed_rows[i] & INT32_MAX) -
                  static_cast<Key>(i);
    const RankTree<Key> tree(keys, survivors);
    tree.count_up_to(ranks, n_born, places);
}

// Column and row of a layer's newborns from their positions within it. Number is int32_t where all positions fit it.
template <class Number>
static void locate_newborns(const RewireLayer& layer, const int64_t* positions, int64_t count, int32_t* columns,
                            int32_t* rows) {
    const double per_row = 1.0 / static_cast<double>(layer.n_out);
    const bool exact = layer.n_in * layer.n_out < int64_t{1} << 52;  // positions are doubles without rounding
    const int64_t first_position = layer.first_position;
    const Number height = static_cast<Number>(layer.n_out), first_column = static_cast<Number>(layer.first_column);
    const auto locate = [&](int64_t t, auto divide) {
        // A product instead of a division, which takes ten times as long; it may be off by one.
        const Number local = static_cast<Number>(positions[t] - first_position);
        Number column = divide(local);
        Number row = local - column * height;
        const Number off = static_cast<Number>(row >= height) - static_cast<Number>(row < 0);
        column += off;
        row -= off * height;
        columns[t] = static_cast<int32_t>(first_column + column);
        rows[t] = static_cast<int32_t>(row);
    };
    if (exact)
        for (int64_t t = 0; t < count; ++t)
            locate(t, [&](Number local) { return static_cast<Number>(static_cast<double>(local) * per_row); });
    else
        for (int64_t t = 0; t < count; ++t) locate(t, [&](Number local) { return local / height; });
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
    if (!task.columns) leave_out_marked(Together<int32_t, 1>{{columns}, {0}}, task.budget, scratch.marks.data());

    const size_t room = static_cast<size_t>(n_dead) + kSignsAtOnce;
    scratch.places.resize(room);
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
            const auto locate = narrow ? locate_newborns<int32_t> : locate_newborns<int64_t>;
            locate(layer, positions + t, born[l], scratch.newborn_columns.data() + t, scratch.rows.data() + t);
        }
        t += born[l];
        first += survivors;
    }
    // Long before the sums below: a number that was just stored is slow to load as part of a vector.
    for (int64_t i = 0; i < n_dead; ++i) ++change[scratch.newborn_columns.data()[i]];
    mark_listed(task, places, n_dead, scratch);
    open_all(task, n_dead, threads, scratch);
    const int64_t* signs = newborn_signs(task, n_dead, scratch);
    for (int64_t i = 0; i < n_dead; ++i) {
        task.packed_rows[places[i]] = scratch.rows.data()[i] | static_cast<int32_t>(signs[i]);
        if (task.columns) task.columns[places[i]] = scratch.newborn_columns.data()[i];
    }
    add_running_sums(change, n_columns, task.colptr + 1);
}

}  // namespace wb::WB_ISA
