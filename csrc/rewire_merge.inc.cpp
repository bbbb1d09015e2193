// Rewiring when many connections are replaced at once: survivors and newborns are two sorted lists that merge.
//
// The other way (rewire.inc.cpp) pays for each event, this one a little for each connection and less for each event,
// with scratch memory as long as a few arrays of the wiring. In a small network a tenth of the connections may be
// replaced in a step.
//
// By the rank formula, a newborn of rank r stands behind the survivors i with position_i - i <= r.
#pragma once

#include "layer.inc.cpp"
#include "rewire_move.inc.cpp"
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
static const int32_t* columns_of(const RewireTask& task, RewireScratch& scratch) {
    if (task.columns) return task.columns;
    scratch.columns.resize(static_cast<size_t>(task.budget) + 8);
    const RewireLayer& last = scratch.layers.back();
    write_columns(task.colptr, last.first_column + last.n_in, scratch.columns.data());
    return scratch.columns.data();
}

// The key of each connection, the dead included: its position less the survivors before it. Keys never fall, and a
// newborn of rank r stands before the first connection whose key is above r.
//
// Between two dead the number of the dead is constant, so those stretches are done in vectors that may write over their
// end: the next stretch writes over it again.
template <class Key>
static const Key* list_keys(const RewireTask& task, const int64_t* dead, int64_t n_dead, const int32_t* columns,
                            RewireScratch& scratch) {
    constexpr int64_t kLanes = 32 / static_cast<int64_t>(sizeof(Key));
    scratch.keys.resize(static_cast<size_t>(task.budget + kLanes) * sizeof(Key) / sizeof(int64_t) + 1);
    Key* keys = reinterpret_cast<Key*>(scratch.keys.data());
    int64_t k = 0, t = 0;
    for (const RewireLayer& layer : scratch.layers) {
        const int64_t end = task.colptr[layer.first_column + layer.n_in];
        const int64_t base = layer.first_position - layer.first_column * layer.n_out;
        const Key height = static_cast<Key>(layer.n_out);
        while (k < end) {
            const bool to_dead = t < n_dead && dead[t] < end;
            const int64_t stop = to_dead ? dead[t] + 1 : end;
            const Key shift = static_cast<Key>(base + t);
            if constexpr (sizeof(Key) == 4) {
                for (; k < stop && k + kLanes <= task.budget; k += kLanes) {
                    const Vec<int32_t, 32> column = load<int32_t, 32>(columns + k), packed_rows = load<int32_t, 32>(task.packed_rows + k);
                    const Vec<int32_t, 32> count = {0, 1, 2, 3, 4, 5, 6, 7};
                    store<int32_t, 32>(keys + k, column * height + (packed_rows & INT32_MAX) - count +
                                                     static_cast<int32_t>(shift - static_cast<Key>(k)));
                }
            }
            for (; k < stop; ++k)
                keys[k] = shift + static_cast<Key>(columns[k]) * height + static_cast<Key>(row_of(task.packed_rows[k])) -
                          static_cast<Key>(k);
            k = stop;
            t += to_dead;
        }
    }
    return keys;
}

// How many of n sorted keys are at most each of four ranks: searches without a branch, side by side.
template <class Key>
WB_INLINE void count_up_to(const Key* keys, int64_t n, const Key* ranks, int64_t* counts) {
    const Key* at[4] = {keys, keys, keys, keys};
    int64_t length = n;
    while (length > 1) {
        const int64_t half = length / 2;
        for (int i = 0; i < 4; ++i) at[i] += half & -static_cast<int64_t>(at[i][half - 1] <= ranks[i]);
        length -= half;
    }
    for (int i = 0; i < 4; ++i) counts[i] = at[i] - keys + (n > 0 && *at[i] <= ranks[i]);
}

// Ranks within layers become ranks among all dormant positions.
static void count_ranks_through(const RewireTask& task, const int64_t* born, RewireScratch& scratch) {
    int64_t before = 0, t = 0;
    for (int64_t i = 0; i < task.layers; ++i) {
        for (const int64_t end = t + born[i]; t < end; ++t) scratch.ranks[static_cast<size_t>(t)] += before;
        before += scratch.dormant[static_cast<size_t>(i)];
    }
}

// The connection, in the old order, before which each newborn stands.
template <class Key>
static void find_places(const RewireTask& task, const int64_t* dead, int64_t n_dead, int64_t n_born,
                        const int32_t* columns, RewireScratch& scratch) {
    const Key* keys = list_keys<Key>(task, dead, n_dead, columns, scratch);
    scratch.places.resize(static_cast<size_t>(n_born) + 4);
    for (int64_t t = 0; t < n_born; t += 4) {
        Key ranks[4];
        for (int64_t i = 0; i < 4; ++i)
            ranks[i] = static_cast<Key>(scratch.ranks[static_cast<size_t>(std::min(t + i, n_born - 1))]);
        count_up_to(keys, task.budget, ranks, scratch.places.data() + t);
    }
}

// Deaths and births in order: the stretches of survivors between them, and where the newborns come to stand.
static void plan_pieces(const RewireTask& task, const int64_t* dead, int64_t n_dead, int64_t n_born,
                        RewireScratch& scratch) {
    scratch.pieces.resize(static_cast<size_t>(n_dead + n_born) + 1);
    scratch.newborns.resize(static_cast<size_t>(n_born) + 1);
    scratch.places[static_cast<size_t>(n_born)] = std::numeric_limits<int64_t>::max();
    Segment* pieces = scratch.pieces.data();
    Newborn* newborns = scratch.newborns.data();
    const int64_t* places = scratch.places.data();
    int64_t begin = 0, to = 0, d = 0, t = 0;
    while (d + t < n_dead + n_born) {
        const int64_t death = d < n_dead ? dead[d] : task.budget, birth = places[t];
        const bool is_birth = birth <= death;
        const int64_t end = is_birth ? birth : death;
        *pieces = Segment{begin, end, to - begin};
        pieces += end > begin;
        to += end - begin;
        newborns[t].target = to;  // right if this is its birth, written over if not
        begin = end + !is_birth;
        to += is_birth;
        t += is_birth;
        d += !is_birth;
    }
    *pieces = Segment{begin, task.budget, to - begin};
    pieces += task.budget > begin;
    scratch.pieces.resize(static_cast<size_t>(pieces - scratch.pieces.data()));
    scratch.newborns.resize(static_cast<size_t>(n_born));
}

// Column and row of each newborn: its position is its rank plus the survivors before it, which are all before its
// target but the newborns.
static void locate_newborns(const RewireTask& task, const int64_t* born, RewireScratch& scratch) {
    scratch.positions.resize(scratch.newborns.size());
    int64_t t = 0;
    for (int64_t l = 0; l < task.layers; ++l) {
        const RewireLayer& layer = scratch.layers[static_cast<size_t>(l)];
        const double per_row = 1.0 / static_cast<double>(layer.n_out);
        const bool exact = layer.n_in * layer.n_out < int64_t{1} << 52;  // positions are doubles without rounding
        for (const int64_t end = t + born[l]; t < end; ++t) {
            Newborn& newborn = scratch.newborns[static_cast<size_t>(t)];
            const int64_t position = scratch.ranks[static_cast<size_t>(t)] + newborn.target - t;
            scratch.positions[static_cast<size_t>(t)] = position;
            // A product instead of a division, which takes ten times as long; it may be off by one.
            const int64_t local = position - layer.first_position;
            int64_t column = exact ? static_cast<int64_t>(static_cast<double>(local) * per_row) : local / layer.n_out;
            int64_t row = local - column * layer.n_out;
            const int64_t off = (row >= layer.n_out) - (row < 0);
            column += off;
            row -= off * layer.n_out;
            newborn.column = layer.first_column + column;
            newborn.packed_rows = static_cast<int32_t>(row);
        }
    }
}

static void recount_columns(const RewireTask& task, const int64_t* dead, int64_t n_dead, const int32_t* columns,
                            RewireScratch& scratch) {
    const RewireLayer& last = scratch.layers.back();
    const int64_t count = last.first_column + last.n_in;
    scratch.change.assign(static_cast<size_t>(count), 0);
    for (int64_t t = 0; t < n_dead; ++t) --scratch.change[static_cast<size_t>(columns[dead[t]])];
    for (const Newborn& newborn : scratch.newborns) ++scratch.change[static_cast<size_t>(newborn.column)];
    int64_t sum = 0;
    for (int64_t c = 0; c < count; ++c) task.colptr[c + 1] += sum += scratch.change[static_cast<size_t>(c)];
}

// N arrays into a second memory and back, a vector at a time: a piece may be written over its end, because the next one
// follows there. All arrays go through the pieces together, since most of the time is in where each piece ends.
template <class Element, int N, class Value>
static void gather_arrays(const wb_carried* carried, int64_t budget, RewireScratch& scratch, Value&& value) {
    constexpr int64_t kSize = static_cast<int64_t>(sizeof(Element));
    const int64_t bytes = budget * kSize, room = (bytes + 63) / 32 * 32;
    scratch.gathered.resize(static_cast<size_t>(N * room));
    char* to[N];
    const char* from[N];
    for (int i = 0; i < N; ++i) {
        to[i] = scratch.gathered.data() + i * room;
        from[i] = static_cast<const char*>(carried[i].data);
    }
    for (const Segment& piece : scratch.pieces) {
        const int64_t begin = piece.begin * kSize, end = piece.end * kSize, shift = piece.shift * kSize;
        if (end + 32 <= bytes) {
            for (int64_t at = begin; at < end; at += 32)
                for (int i = 0; i < N; ++i) store<int8_t, 32>(to[i] + at + shift, load<int8_t, 32>(from[i] + at));
        } else {
            for (int i = 0; i < N; ++i)
                std::memcpy(to[i] + begin + shift, from[i] + begin, static_cast<size_t>(end - begin));
        }
    }
    for (int i = 0; i < N; ++i) {
        Element* elements = reinterpret_cast<Element*>(to[i]);
        for (const Newborn& newborn : scratch.newborns)
            elements[newborn.target] = static_cast<Element>(value(newborn, carried[i], i));
        std::memcpy(carried[i].data, to[i], static_cast<size_t>(bytes));
    }
}

// The same for any number of arrays, four or fewer at a time.
template <class Element, class Value>
static void gather_all(const std::vector<wb_carried>& carried, int64_t budget, RewireScratch& scratch, Value&& value) {
    for (size_t at = 0; at < carried.size(); at += 4) {
        const wb_carried* here = carried.data() + at;
        const auto with_index = [&](const Newborn& newborn, const wb_carried& moved, int i) {
            return value(newborn, moved, at + static_cast<size_t>(i));
        };
        switch (std::min<size_t>(4, carried.size() - at)) {
            case 1: gather_arrays<Element, 1>(here, budget, scratch, with_index); break;
            case 2: gather_arrays<Element, 2>(here, budget, scratch, with_index); break;
            case 3: gather_arrays<Element, 3>(here, budget, scratch, with_index); break;
            default: gather_arrays<Element, 4>(here, budget, scratch, with_index); break;
        }
    }
}

static void gather_riders(const RewireTask& task, RewireScratch& scratch) {
    for (std::vector<wb_carried>& carried : scratch.by_width) carried.clear();
    // Code and column first, because their newborns have values of their own.
    std::vector<wb_carried>& words = scratch.by_width[2];
    words.push_back(wb_carried{task.packed_rows, 4, 0});
    if (task.columns) words.push_back(wb_carried{task.columns, 4, 0});
    const size_t own = words.size();
    for (int64_t i = 0; i < task.n_carried; ++i)
        scratch.by_width[__builtin_ctzll(static_cast<uint64_t>(task.carried[i].size))].push_back(task.carried[i]);
    gather_all<int32_t>(words, task.budget, scratch, [&](const Newborn& newborn, const wb_carried& moved, size_t i) {
        return i == 0 ? newborn.packed_rows : i < own ? newborn.column : moved.fill;
    });
    const auto fill = [](const Newborn&, const wb_carried& moved, size_t) { return moved.fill; };
    gather_all<int8_t>(scratch.by_width[0], task.budget, scratch, fill);
    gather_all<int16_t>(scratch.by_width[1], task.budget, scratch, fill);
    gather_all<int64_t>(scratch.by_width[3], task.budget, scratch, fill);
}

// Replaces the dead, once the ranks are drawn.
static void rewire_by_merging(const RewireTask& task, const int64_t* dead, int64_t n_dead, const int64_t* born,
                              RewireScratch& scratch) {
    const int32_t* columns = columns_of(task, scratch);
    count_ranks_through(task, born, scratch);
    const RewireLayer& last = scratch.layers.back();
    if (last.first_position + last.n_in * last.n_out < INT32_MAX)
        find_places<int32_t>(task, dead, n_dead, n_dead, columns, scratch);
    else find_places<int64_t>(task, dead, n_dead, n_dead, columns, scratch);
    plan_pieces(task, dead, n_dead, n_dead, scratch);
    locate_newborns(task, born, scratch);
    add_signs(task, scratch);
    recount_columns(task, dead, n_dead, columns, scratch);
    gather_riders(task, scratch);
}

}  // namespace wb::WB_ISA
