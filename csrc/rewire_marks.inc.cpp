// Marks, one bit for each connection: arrays close up where connections are marked as dead, and open where newborns come.
// Either is one pass over the array in place, whatever the number of marks.
#pragma once

#include "rewire_task.inc.cpp"

namespace wb::WB_ISA {

// One bit for each connection, and a word more, so that the end is a place like all others.
static uint64_t* clear_marks(int64_t budget, RewireScratch& scratch) {
    scratch.marks.assign(static_cast<size_t>(budget / 64 + 1), 0);
    return scratch.marks.data();
}

static void mark(uint64_t* marks, int64_t k) { marks[k / 64] |= uint64_t{1} << (k % 64); }

// Marks of a list in rising order: a word is put together in a register, because one that was just stored is slow to load,
// and whether a new one begins cannot be guessed.
class MarkWriter {
public:
    explicit MarkWriter(uint64_t* marks) : marks_(marks) {}
    WB_INLINE void add(int64_t k) {
        const uint64_t same = k / 64 == at_;
        word_ = (word_ & -same) | uint64_t{1} << (k % 64);
        at_ = k / 64;
        marks_[at_] = word_;
    }

private:
    uint64_t *marks_, word_ = 0;
    int64_t at_ = -1;
};

static void mark_listed(const RewireTask& task, const int64_t* dead, int64_t n_dead, RewireScratch& scratch) {
    MarkWriter marks(clear_marks(task.budget, scratch));
    for (int64_t t = 0; t < n_dead; ++t) marks.add(dead[t]);
}

#if defined(__AVX512F__)
constexpr int kMovedLanes = 16;
WB_INLINE Vec<int32_t, 64> without_marked(Vec<int32_t, 64> values, unsigned marks) {
    typedef Vec<int, 64> Ints16;
    return (Vec<int32_t, 64>)__builtin_ia32_compresssi512_mask((Ints16)values, Ints16{}, static_cast<unsigned short>(~marks));
}
WB_INLINE Vec<int32_t, 64> with_room(Vec<int32_t, 64> values, unsigned marks, int32_t fill) {
    typedef Vec<int, 64> Ints16;
    return (Vec<int32_t, 64>)__builtin_ia32_expandsi512_mask((Ints16)values, (Ints16)splat<int32_t, 64>(fill),
                                                            static_cast<unsigned short>(~marks));
}
#elif defined(__AVX2__)
constexpr int kMovedLanes = 8;
WB_INLINE Ints8 pick_lanes(Ints8 values, uint64_t lanes) {
    return (Ints8)__builtin_ia32_permvarsi256(values, bytes_as_ints(lanes));
}
WB_INLINE Ints8 without_marked(Ints8 values, unsigned marks) { return pick_lanes(values, kLanes.set[~marks & 255]); }
WB_INLINE Ints8 with_room(Ints8 values, unsigned marks, int32_t fill) {
    const Ints8 bit = {1, 2, 4, 8, 16, 32, 64, 128};
    const Ints8 marked = (splat<int32_t, 32>(static_cast<int32_t>(marks)) & bit) != 0;
    return (pick_lanes(values, kLanes.before[marks]) & ~marked) | (splat<int32_t, 32>(fill) & marked);
}
#else
constexpr int kMovedLanes = 0;  // one by one
#endif

// Arrays that are moved in one pass, which looks at the marks once for all of them, and what newborns hold there.
template <class Element, int N>
struct Together {
    Element* data[N];
    Element fill[N];
};

// An array of floats is moved as one of integers, which a plain assignment may not do.
template <class Element>
WB_INLINE void copy_element(Element* to, const Element* from) {
    Element value;
    std::memcpy(&value, from, sizeof value);
    std::memcpy(to, &value, sizeof value);
}

#if defined(__AVX2__)
// Some vectors of a word's connections: what is written too much is written over next, and was read before.
template <int N>
WB_INLINE int64_t leave_out_vectors(const Together<int32_t, N>& arrays, int64_t k, int64_t to, uint64_t word,
                                    int64_t vectors) {
    constexpr int kBytes = 4 * kMovedLanes;
    for (int64_t i = 0; i < vectors; ++i, word >>= kMovedLanes) {
        const unsigned marks = word & ((1u << kMovedLanes) - 1);
        for (int32_t* values : arrays.data)
            store<int32_t, kBytes>(values + to,
                                   without_marked(load<int32_t, kBytes>(values + k + kMovedLanes * i), marks));
        to += kMovedLanes - __builtin_popcount(marks);
    }
    return to;
}

template <int N>
WB_INLINE int64_t open_vectors(const Together<int32_t, N>& arrays, int64_t k, int64_t from, uint64_t word,
                               int64_t vectors) {
    constexpr int kBytes = 4 * kMovedLanes;
    for (int64_t i = vectors; i-- > 0;) {
        const unsigned marks = static_cast<unsigned>(word >> (kMovedLanes * i)) & ((1u << kMovedLanes) - 1);
        from -= kMovedLanes - __builtin_popcount(marks);
        for (int n = 0; n < N; ++n)
            store<int32_t, kBytes>(arrays.data[n] + k + kMovedLanes * i,
                                   with_room(load<int32_t, kBytes>(arrays.data[n] + from), marks, arrays.fill[n]));
    }
    return from;
}
#endif

// Moves what is not marked to the left. Nothing is ever written to the right of what is read next.
template <class Element, int N>
static void leave_out_marked(const Together<Element, N> arrays, int64_t count, const uint64_t* marks) {
    int64_t to = 0;
    for (int64_t k = 0; k < count; k += 64) {
        uint64_t word = marks[k / 64];
        const int64_t here = std::min<int64_t>(64, count - k);
        if (word == 0) {
            for (Element* values : arrays.data)
                if (to < k) std::memmove(values + to, values + k, static_cast<size_t>(here) * sizeof(Element));
            to += here;
            continue;
        }
        int64_t i = 0;
#if defined(__AVX2__)
        if constexpr (sizeof(Element) == 4) {
            if (here == 64) {
                to = leave_out_vectors(arrays, k, to, word, 64 / kMovedLanes);
                continue;
            }
            i = here / kMovedLanes * kMovedLanes;
            to = leave_out_vectors(arrays, k, to, word, here / kMovedLanes);
        }
#endif
        // Each is written, and stays if it is not marked: no branch has to guess.
        for (; i < here; ++i) {
            for (Element* values : arrays.data) copy_element(values + to, values + k + i);
            to += ~word >> i & 1;
        }
    }
}

// The reverse: the first `survivors` values move to the right, to where no mark is; marked ones become `fill`.
template <class Element, int N>
static void open_marked(const Together<Element, N> arrays, int64_t count, int64_t survivors, const uint64_t* marks) {
    int64_t from = survivors;
    for (int64_t k = (count - 1) / 64 * 64; k >= 0; k -= 64) {
        const uint64_t word = marks[k / 64];
        const int64_t here = std::min<int64_t>(64, count - k);
        if (word == 0) {
            from -= here;
            for (Element* values : arrays.data)
                if (from < k) std::memmove(values + k, values + from, static_cast<size_t>(here) * sizeof(Element));
            continue;
        }
        int64_t vectors = 0;
#if defined(__AVX2__)
        if constexpr (sizeof(Element) == 4) {
            if (here == 64) {
                from = open_vectors(arrays, k, from, word, 64 / kMovedLanes);
                continue;
            }
            vectors = here / kMovedLanes;
        }
#endif
        for (int64_t i = here; i-- > vectors * kMovedLanes;) {
            const bool marked = word >> i & 1;
            from -= !marked;
            for (int n = 0; n < N; ++n)
                copy_element(arrays.data[n] + k + i, marked ? &arrays.fill[n] : arrays.data[n] + from);
        }
#if defined(__AVX2__)
        if constexpr (sizeof(Element) == 4) from = open_vectors(arrays, k, from, word, vectors);
#endif
    }
}

// Calls function with a number of the type that is so many bytes wide.
template <class Function>
static void with_element(int64_t bytes, Function&& function) {
    switch (bytes) {
        case 1: return function(int8_t{});
        case 2: return function(int16_t{});
        case 4: return function(int32_t{});
        default: return function(int64_t{});
    }
}

// Calls function(together) for all arrays of the wiring: three of four bytes at a time, or each by itself if there are
// threads to share them.
template <class Function>
static void for_each_array(const RewireTask& task, int threads, RewireScratch& scratch, Function&& function) {
    std::vector<wb_carried>& arrays = scratch.arrays;
    arrays.assign(1, wb_carried{task.packed_rows, 4, 0});
    if (task.columns) arrays.push_back(wb_carried{task.columns, 4, 0});
    for (int64_t i = 0; i < task.n_carried; ++i)
        if (task.carried[i].size == 4) arrays.push_back(task.carried[i]);
    const int64_t narrow = static_cast<int64_t>(arrays.size());
    for (int64_t i = 0; i < task.n_carried; ++i)
        if (task.carried[i].size != 4) arrays.push_back(task.carried[i]);
    const auto call = [&](auto element, auto count, int64_t first) {
        using Element = decltype(element);
        Together<Element, decltype(count)::value> together;
        for (int64_t n = 0; n < count; ++n) {
            const wb_carried& moved = arrays.data()[first + n];
            together.data[n] = static_cast<Element*>(moved.data);
            together.fill[n] = static_cast<Element>(moved.fill);
        }
        function(together);
    };
    using One = std::integral_constant<int, 1>;
    using Two = std::integral_constant<int, 2>;
    using Three = std::integral_constant<int, 3>;
    const int64_t most = threads > 1 ? 1 : 3, groups = (narrow + most - 1) / most;
    parallel_for(threads, groups + static_cast<int64_t>(arrays.size()) - narrow, [&](int64_t i) {
        if (i >= groups) {
            const int64_t at = narrow + i - groups;
            return with_element(arrays.data()[at].size, [&](auto element) { call(element, One{}, at); });
        }
        switch (std::min(most, narrow - most * i)) {
            case 1: return call(int32_t{}, One{}, most * i);
            case 2: return call(int32_t{}, Two{}, most * i);
            default: return call(int32_t{}, Three{}, most * i);
        }
    });
}

// All arrays without the marked.
static void leave_out_of_all(const RewireTask& task, int threads, RewireScratch& scratch) {
    for_each_array(task, threads, scratch,
                   [&](const auto& arrays) { leave_out_marked(arrays, task.budget, scratch.marks.data()); });
}

// All arrays with room for newborns where the marks are, and what those hold there.
static void open_all(const RewireTask& task, int64_t n_born, int threads, RewireScratch& scratch) {
    for_each_array(task, threads, scratch, [&](const auto& arrays) {
        open_marked(arrays, task.budget, task.budget - n_born, scratch.marks.data());
    });
}

}  // namespace wb::WB_ISA
