// Death and rebirth: the dead leave, as many dormant connections are drawn, and all arrays are put in order in place,
// with scratch memory for the events only.
//
//   1. the dead leave the column pointers                         drop_dead
//   2. ranks among the dormant positions are drawn                rewire_draw.inc.cpp
//   3. each rank becomes a column, a row and a place in the order  place_newborns
//   4. the newborns enter the column pointers                     add_newborns
//   5. segments between events shift, newborns fill the gaps       rewire_move.inc.cpp
//
// Where a large share of the connections is replaced, 3 to 5 are one merge instead: rewire_merge.inc.cpp. Of a large
// wiring, that merge and these events would take too much memory: rewire_stream.inc.cpp.
#pragma once

#include "guard.inc.cpp"
#include "rewire_merge.inc.cpp"
#include "rewire_move.inc.cpp"
#include "rewire_stream.inc.cpp"

namespace wb::WB_ISA {

static void add_newborns(const RewireTask& task, RewireScratch& scratch) {
    const RewireLayer& last = scratch.layers.back();
    int64_t column = 0, t = 0;
    for (const Newborn& newborn : scratch.newborns) {
        add_between(task.colptr, column + 1, newborn.column + 1, t);
        column = newborn.column;
        ++t;
    }
    add_between(task.colptr, column + 1, last.first_column + last.n_in + 1, t);
}

// Replaces the dead (sorted indices) by newborns. born and died count them for each layer.
static void rewire_wiring(const RewireTask& task, const int64_t* dead, int64_t n_dead, int64_t* born, int64_t* died,
                          int threads, RewireScratch& scratch) {
    for (int64_t i = 0; i < task.layers; ++i) born[i] = died[i] = 0;
    if (n_dead == 0) return;
    if (worth_streaming(task, n_dead)) {
        mark_listed(task, dead, n_dead, scratch);
        return rewire_by_streaming(task, n_dead, born, died, threads, scratch);
    }
    list_layers(task, scratch);
    const RewireLayer& last = scratch.layers.back();
    const bool merge = worth_merging(task, n_dead, last.first_column + last.n_in);
    if (merge) count_dead(task, dead, n_dead, died, scratch);
    else drop_dead(task, dead, n_dead, died, scratch);
    count_dormant(task, merge ? died : nullptr, scratch);
    draw_ranks(task, n_dead, born, scratch);
    if (merge) return rewire_by_merging(task, dead, n_dead, born, died, threads, scratch);
    scratch.newborns.clear();
    scratch.positions.clear();
    // A vector that grows by itself is up to three times as large meanwhile.
    scratch.newborns.reserve(static_cast<size_t>(n_dead));
    scratch.positions.reserve(static_cast<size_t>(round_up(n_dead, kSignsAtOnce)));
    const int64_t* ranks = scratch.ranks.data();
    for (int64_t i = 0; i < task.layers; ++i) {
        const RewireLayer& layer = scratch.layers[static_cast<size_t>(i)];
        const int64_t first = static_cast<int64_t>(scratch.newborns.size());
        find_columns(task, layer, ranks, born[i], scratch);
        place_newborns(task, layer, dead, n_dead, first, scratch);
        ranks += born[i];
    }
    add_signs(task, scratch);
    add_newborns(task, scratch);
    move_riders(task, dead, n_dead, threads, scratch);
}

static int64_t entry_rewire(int64_t budget, int64_t layers, const int64_t* n_in, const int64_t* n_out, int64_t* colptr,
                      int32_t* packed_rows, const wb_carried* carried, int64_t n_carried, const int64_t* dead, int64_t n_dead,
                      uint64_t seed, int32_t wiring_index, int64_t step, const double* shares, int64_t* born,
                      int64_t* died, int threads) {
    static thread_local RewireScratch scratch;
    const RewireTask task{budget, layers, n_in, n_out, colptr, packed_rows, carried, n_carried, nullptr, seed, wiring_index, step,
                          shares, most_listed(budget)};
    rewire_wiring(task, dead, n_dead, born, died, threads, scratch);
    scratch.give_back_large();
    return n_dead;
}

}  // namespace wb::WB_ISA
