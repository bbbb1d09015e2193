// Where the dead were and where the newborns come to stand: columns, rows, places in the order, signs.
#pragma once

#include "layer.inc.cpp"
#include "random.inc.cpp"
#include "rewire_draw.inc.cpp"
#include "rewire_task.inc.cpp"

namespace wb::WB_ISA {

// The first index in [low, high) for which `right` holds, or high; right(i) must be false up to some index and true
// from there. Steps double from `low`, because the events come in order and the next one is near.
template <class Predicate>
WB_INLINE int64_t gallop(int64_t low, int64_t high, Predicate&& right) {
    int64_t step = 1;
    while (low + step < high && !right(low + step - 1)) {
        low += step;
        step *= 2;
    }
    high = std::min(high, low + step);
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (right(middle)) high = middle;
        else low = middle + 1;
    }
    return low;
}

static void add_between(int64_t* values, int64_t from, int64_t to, int64_t amount) {
    if (amount == 0) return;
    for (int64_t i = from; i < to; ++i) values[i] += amount;
}

// Column pointers of the survivors, the column of each dead connection, and how many died in each layer.
static void drop_dead(const RewireTask& task, const int64_t* dead, int64_t n_dead, int64_t* died, RewireScratch& scratch) {
    const RewireLayer& last = scratch.layers.back();
    const int64_t columns = last.first_column + last.n_in;
    scratch.dead_columns.resize(static_cast<size_t>(n_dead));
    int64_t column = 0, layer = 0;
    for (int64_t t = 0; t < n_dead; ++t) {
        // The column that holds the connection is the last one that begins at or before it.
        const int64_t k = dead[t];
        const int64_t next = gallop(column + 1, columns + 1, [&](int64_t c) { return task.colptr[c] > k; });
        add_between(task.colptr, column + 1, next, -t);
        // Pointers up to the column are final, those after it still count all the dead: that is what the search needs.
        column = next - 1;
        scratch.dead_columns[static_cast<size_t>(t)] = column;
        while (column >= scratch.layers[static_cast<size_t>(layer)].first_column +
                             scratch.layers[static_cast<size_t>(layer)].n_in)
            ++layer;
        ++died[layer];
    }
    add_between(task.colptr, column + 1, columns + 1, -n_dead);
}

// The column of each of `count` sorted ranks among the dormant positions of a layer, and the rank within the column.
static void find_columns(const RewireTask& task, const RewireLayer& layer, const int64_t* ranks, int64_t count,
                         RewireScratch& scratch) {
    const int64_t* colptr = task.colptr + layer.first_column;
    // Dormant positions before a column: all positions there, less the survivors. The last column that has no more
    // than `rank` of them before it holds the newborn.
    const auto dormant_before = [&](int64_t c) { return c * layer.n_out - (colptr[c] - colptr[0]); };
    int64_t column = 0;
    for (int64_t t = 0; t < count; ++t) {
        column = gallop(column + 1, layer.n_in, [&](int64_t c) { return dormant_before(c) > ranks[t]; }) - 1;
        scratch.newborns.push_back(Newborn{layer.first_column + column, ranks[t] - dormant_before(column), 0, 0});
    }
}

// Row and place of the newborns from number `first` on, whose place field still holds the rank within the column: by
// the rank formula, the row is the rank plus the number of survivors i of the column with row_i - i at most the rank.
static void place_newborns(const RewireTask& task, const RewireLayer& layer, const int64_t* dead, int64_t n_dead,
                           int64_t first, RewireScratch& scratch) {
    const int64_t* dead_columns = scratch.dead_columns.data();
    const int64_t count = static_cast<int64_t>(scratch.newborns.size());
    // Rows are spread evenly, so a newborn's place is near its share of the column.
    const auto guess = [&](const Newborn& newborn, int64_t begin, int64_t end) {
        const int64_t dormant = layer.n_out - (task.colptr[newborn.column + 1] - task.colptr[newborn.column]);
        const double share = static_cast<double>(newborn.place) / static_cast<double>(dormant);
        return std::min(begin + static_cast<int64_t>(share * static_cast<double>(end - begin)), end - 1);
    };
    constexpr int64_t kAhead = 8;
    int64_t dead_before = 0;
    for (int64_t t = first; t < count; ++t) {
        if (t + kAhead < count) {
            const Newborn& next = scratch.newborns[static_cast<size_t>(t + kAhead)];
            __builtin_prefetch(task.packed_rows + guess(next, task.colptr[next.column], task.colptr[next.column + 1] + 1));
        }
        Newborn& newborn = scratch.newborns[static_cast<size_t>(t)];
        const int64_t rank = newborn.place;
        dead_before = gallop(dead_before, n_dead, [&](int64_t i) { return dead_columns[i] >= newborn.column; });
        const int64_t dead_after =
            gallop(dead_before, n_dead, [&](int64_t i) { return dead_columns[i] > newborn.column; });
        // The column in the old order, the dead among the survivors.
        const int64_t begin = task.colptr[newborn.column] + dead_before, end = task.colptr[newborn.column + 1] + dead_after;
        const auto survivors_before = [&](int64_t k) {
            const int64_t gone = gallop(dead_before, dead_after, [&](int64_t i) { return dead[i] >= k; }) - dead_before;
            return k - begin - gone;
        };
        const auto follows = [&](int64_t k) { return row_of(task.packed_rows[k]) - survivors_before(k) > rank; };
        int64_t low = begin, high = end;
        if (begin < end) {
            const int64_t middle = guess(newborn, begin, end);
            if (follows(middle)) {
                high = middle;
                for (int64_t step = 4; high - step >= begin; step *= 2) {
                    if (!follows(high - step)) {
                        low = high - step + 1;
                        break;
                    }
                    high -= step;
                }
            } else {
                low = middle + 1;
            }
        }
        newborn.place = gallop(low, high, follows);
        const int64_t row = rank + survivors_before(newborn.place);
        newborn.packed_rows = static_cast<int32_t>(row);
        scratch.positions.push_back(layer.first_position + (newborn.column - layer.first_column) * layer.n_out + row);
    }
}

// The signs of all newborns, for their packed rows.
static const int64_t* newborn_signs(const RewireTask& task, int64_t count, RewireScratch& scratch) {
    const size_t room = static_cast<size_t>(round_up(count, kSignsAtOnce));
    scratch.positions.resize(room);
    scratch.signs.resize(room);
    const uint32_t stream = uint32_t{WB_STREAM_SIGN} | static_cast<uint32_t>(task.wiring_index) << 8;
    negative_signs(task.seed, stream, scratch.positions.data(), count, scratch.signs.data());
    return scratch.signs.data();
}

static void add_signs(const RewireTask& task, RewireScratch& scratch) {
    const int64_t* signs = newborn_signs(task, static_cast<int64_t>(scratch.newborns.size()), scratch);
    for (Newborn& newborn : scratch.newborns) newborn.packed_rows |= static_cast<int32_t>(*signs++);
}

static void list_layers(const RewireTask& task, RewireScratch& scratch) {
    scratch.layers.clear();
    int64_t column = 0, position = 0;
    for (int64_t i = 0; i < task.layers; ++i) {
        scratch.layers.push_back(RewireLayer{task.n_in[i], task.n_out[i], column, position});
        column += task.n_in[i];
        position += task.n_in[i] * task.n_out[i];
    }
}

// The columns of a layer to which newborns may come: all, or those of a list.
struct OpenColumns {
    const int64_t *listed, *colptr, *before;  // listed: null for all. before: survivors in the listed ones before each
    int64_t count, n_out, first;              // first: colptr[0], which changes once newborns are counted

    WB_INLINE int64_t column(int64_t j) const { return listed ? listed[j] : j; }
    // Dormant positions before the j-th: all positions there, less the survivors.
    WB_INLINE int64_t dormant_before(int64_t j) const {
        return j * n_out - (listed ? before[j] : colptr[j] - first);
    }
};

static bool has_open_list(const RewireTask& task) { return task.open_counts != nullptr; }

// For each layer of a task with lists of open columns, how many survivors the listed columns before each one have; behind
// the last, how many they have together.
static void count_open(const RewireTask& task, RewireScratch& scratch) {
    scratch.open_before.clear();
    const int64_t* listed = task.open_columns;
    for (int64_t i = 0; i < task.layers; ++i) {
        const int64_t* colptr = task.colptr + scratch.layers[static_cast<size_t>(i)].first_column;
        int64_t sum = 0;
        for (int64_t j = 0; j < task.open_counts[i]; ++j, ++listed) {
            scratch.open_before.push_back(sum);
            sum += colptr[*listed + 1] - colptr[*listed];
        }
        scratch.open_before.push_back(sum);
    }
}

// The open columns of layer l, whose own list begins `listed_before` columns into all lists.
static OpenColumns open_columns(const RewireTask& task, int64_t l, int64_t listed_before, const RewireScratch& scratch) {
    const RewireLayer& layer = scratch.layers[static_cast<size_t>(l)];
    const int64_t* colptr = task.colptr + layer.first_column;
    if (!has_open_list(task) || task.open_counts[l] < 0)
        return OpenColumns{nullptr, colptr, nullptr, layer.n_in, layer.n_out, colptr[0]};
    return OpenColumns{task.open_columns + listed_before, colptr, scratch.open_before.data() + listed_before + l,
                       task.open_counts[l], layer.n_out, colptr[0]};
}

// Dormant positions of each layer once the dead have left; `died` is null if they have left the column pointers. With
// lists of open columns: those in there.
static void count_dormant(const RewireTask& task, const int64_t* died, RewireScratch& scratch) {
    scratch.dormant.clear();
    if (has_open_list(task)) count_open(task, scratch);
    for (int64_t i = 0, listed = 0; i < task.layers; ++i) {
        const RewireLayer& layer = scratch.layers[static_cast<size_t>(i)];
        const int64_t* colptr = task.colptr + layer.first_column;
        if (has_open_list(task) && task.open_counts[i] >= 0) {
            const OpenColumns open = open_columns(task, i, listed, scratch);
            scratch.dormant.push_back(open.dormant_before(open.count));
            listed += open.count;
            continue;
        }
        const int64_t survivors = colptr[layer.n_in] - colptr[0] - (died ? died[i] : 0);
        scratch.dormant.push_back(layer.n_in * layer.n_out - survivors);
    }
}

}  // namespace wb::WB_ISA
