// Rewiring of a large wiring when many connections are replaced at once: all arrays are moved twice, by one bit for each
// connection, and the only other memory is eight bytes for each newborn.
//
//   1. the dead are marked in the old order, and every array closes up     leave_out_marked
//   2. ranks are drawn, each becomes a packed row and a place among the survivors  place_among_survivors
//   3. newborns are marked in the new order, and every array makes room    open_marked
//
// The other ways keep up to 120 bytes for each event, which may be more than the wiring itself.
#pragma once

#include "rewire_merge.inc.cpp"

namespace wb::WB_ISA {

// A large wiring lists its dead and newborns only up to a share of its connections: about two bytes for each.
static int64_t most_listed(int64_t budget) { return budget <= kMergeBudget ? budget : budget / 64; }

// Newborns that may come to some columns only are always placed this way.
static bool worth_streaming(const RewireTask& task, int64_t n_dead) {
    return n_dead > task.most_listed || (n_dead > 0 && has_open_list(task));
}

template <class T>
static void mark_negative(const RewireTask& task, const T* theta, RewireScratch& scratch) {
    uint64_t* marks = clear_marks(task.budget, scratch);
    int64_t k = 0;
    for (; k + 64 <= task.budget; k += 64) {
        uint64_t word = 0;
        for (int i = 0; i < 8; ++i) word |= static_cast<uint64_t>(negative_bits(theta + k + 8 * i)) << 8 * i;
        marks[k / 64] = word;
    }
    for (; k < task.budget; ++k)
        if (theta[k] < 0) mark(marks, k);
}

// Column pointers of the survivors, and how many died in each layer.
static void drop_marked(const RewireTask& task, int64_t* died, const RewireScratch& scratch) {
    const uint64_t* marks = scratch.marks.data();
    int64_t word = 0, in_words = 0, before = 0, column = 0;
    for (int64_t i = 0; i < task.layers; ++i) {
        const int64_t before_layer = before;
        for (const int64_t end = column + task.n_in[i]; column < end; ++column) {
            int64_t& pointer = task.colptr[column + 1];
            for (; word < pointer / 64; ++word) in_words += __builtin_popcountll(marks[word]);
            before = in_words + __builtin_popcountll(marks[word] & ((uint64_t{1} << (pointer % 64)) - 1));
            pointer -= before;
        }
        died[i] = before - before_layer;
    }
}

// What a newborn's rank becomes: its packed row, and its column for arrays of columns, whose numbers have 31 bits.
static int64_t pack_newborn(int64_t column, int64_t row) {
    return static_cast<int64_t>(static_cast<uint64_t>(column) << 32) | row;
}
static int32_t code_of_packed(int64_t packed) { return static_cast<int32_t>(packed); }
static int32_t column_of_packed(int64_t packed) { return static_cast<int32_t>(packed >> 32); }

// Turns ranks into packed newborns, marks their places in the new order, and enters them into the column pointers. By
// the rank formula, the row is the rank plus the number of survivors i of the column with row_i - i at most the rank.
static void place_among_survivors(const RewireTask& task, const int64_t* born, RewireScratch& scratch) {
    uint64_t* marks = clear_marks(task.budget, scratch);
    int64_t* newborns = scratch.ranks.data();
    const uint32_t stream = uint32_t{WB_STREAM_SIGN} | static_cast<uint32_t>(task.wiring_index) << 8;
    int64_t positions[kSignsAtOnce] = {}, signs[kSignsAtOnce];
    int waiting = 0;
    const auto add_signs_until = [&](int64_t end) {
        negative_signs(task.seed, stream, positions, waiting, signs);
        for (int i = 0; i < waiting; ++i) newborns[end - waiting + i] |= signs[i];
        waiting = 0;
    };
    int64_t t = 0, final = 0;  // column pointers up to `final` count the newborns, those after it the survivors only
    const auto finish_pointers = [&](int64_t last) {
        add_between(task.colptr, final + 1, last + 1, t);
        final = std::max(final, last);
    };
    for (int64_t l = 0, listed = 0; l < task.layers; ++l) {
        const OpenColumns open = open_columns(task, l, listed, scratch);
        if (open.listed) listed += open.count;
        if (born[l] == 0) continue;
        const RewireLayer& layer = scratch.layers[static_cast<size_t>(l)];
        const int64_t* colptr = task.colptr + layer.first_column;
        const int64_t first = colptr[0];
        // The last open column that has no more than `rank` dormant positions before it holds the newborn.
        int64_t number = open.listed ? -1 : 0, column = 0, begin = first, before = 0, place = begin;
        finish_pointers(layer.first_column);
        for (const int64_t end = t + born[l]; t < end; ++t) {
            const int64_t rank = newborns[t];
            const int64_t found = gallop(number + 1, open.count, [&](int64_t j) { return open.dormant_before(j) > rank; }) - 1;
            if (found > number) {
                number = found;
                column = open.column(number);
                place = begin = column > 0 ? colptr[column] : first;
                before = open.dormant_before(number);
                finish_pointers(layer.first_column + column);
            }
            place = gallop(place, colptr[column + 1],
                           [&](int64_t k) { return row_of(task.packed_rows[k]) - (k - begin) > rank - before; });
            const int64_t row = rank - before + place - begin;
            newborns[t] = pack_newborn(layer.first_column + column, row);
            mark(marks, place + t);
            positions[waiting++] = layer.first_position + column * layer.n_out + row;
            if (waiting == kSignsAtOnce) add_signs_until(t + 1);
        }
    }
    add_signs_until(t);
    const RewireLayer& last = scratch.layers.back();
    finish_pointers(last.first_column + last.n_in);
}

// Calls function(t, k) for the t-th mark, which is at k.
template <class Function>
static void for_each_mark(const RewireScratch& scratch, Function&& function) {
    int64_t t = 0;
    for (size_t w = 0; w < scratch.marks.size(); ++w)
        for (uint64_t word = scratch.marks[w]; word != 0; word &= word - 1)
            function(t++, static_cast<int64_t>(64 * w) + __builtin_ctzll(word));
}

// Replaces the marked.
static void rewire_by_streaming(RewireTask task, int64_t n_dead, int64_t* born, int64_t* died, int threads,
                                RewireScratch& scratch) {
    list_layers(task, scratch);
    scratch.ranks.reserve(static_cast<size_t>(n_dead));  // before anything moves: it may not be there
    for (int64_t i = 0; i < task.layers; ++i) born[i] = 0;
    drop_marked(task, died, scratch);
    leave_out_of_all(task, threads, scratch);
    count_dormant(task, nullptr, scratch);
    int64_t room = 0;
    for (int64_t here : scratch.dormant) room += here;
    if (has_open_list(task) && room < n_dead) {
        task.open_counts = nullptr;
        count_dormant(task, nullptr, scratch);
    }
    draw_ranks(task, n_dead, born, scratch);
    place_among_survivors(task, born, scratch);
    open_all(task, n_dead, threads, scratch);
    const int64_t* newborns = scratch.ranks.data();
    for_each_mark(scratch, [&](int64_t t, int64_t k) {
        task.packed_rows[k] = code_of_packed(newborns[t]);
        if (task.columns) task.columns[k] = column_of_packed(newborns[t]);
    });
}

}  // namespace wb::WB_ISA
