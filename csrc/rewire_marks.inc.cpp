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

// An array of floats is moved as one of integers, which a plain assignment may not do.
template <class Element>
WB_INLINE void copy_element(Element* to, const Element* from) {
    Element value;
    std::memcpy(&value, from, sizeof value);
    std::memcpy(to, &value, sizeof value);
}

#if defined(__AVX2__)
// Some vectors of a word's connections: what is written too much is written over next, and was read before.
WB_INLINE int64_t leave_out_vectors(int32_t* values, int64_t k, int64_t to, uint64_t word, int64_t vectors) {
    constexpr int kBytes = 4 * kMovedLanes;
    for (int64_t i = 0; i < vectors; ++i, word >>= kMovedLanes) {
        const unsigned marks = word & ((1u << kMovedLanes) - 1);
        store<int32_t, kBytes>(values + to, without_marked(load<int32_t, kBytes>(values + k + kMovedLanes * i), marks));
        to += kMovedLanes - __builtin_popcount(marks);
    }
    return to;
}

WB_INLINE int64_t open_vectors(int32_t* values, int64_t k, int64_t from, uint64_t word, int64_t vectors, int32_t fill) {
    constexpr int kBytes = 4 * kMovedLanes;
    for (int64_t i = vectors; i-- > 0;) {
        const unsigned marks = static_cast<unsigned>(word >> (kMovedLanes * i)) & ((1u << kMovedLanes) - 1);
        from -= kMovedLanes - __builtin_popcount(marks);
        store<int32_t, kBytes>(values + k + kMovedLanes * i, with_room(load<int32_t, kBytes>(values + from), marks, fill));
    }
    return from;
}
#endif

// Moves what is not marked to the left. Nothing is ever written to the right of what is read next.
template <class Element>
static void leave_out_marked(Element* values, int64_t count, const uint64_t* marks) {
    int64_t to = 0;
    for (int64_t k = 0; k < count; k += 64) {
        uint64_t word = marks[k / 64];
        const int64_t here = std::min<int64_t>(64, count - k);
        if (word == 0) {
            if (to < k) std::memmove(values + to, values + k, static_cast<size_t>(here) * sizeof(Element));
            to += here;
            continue;
        }
        int64_t i = 0;
#if defined(__AVX2__)
        if constexpr (sizeof(Element) == 4) {
            if (here == 64) {
                to = leave_out_vectors(values, k, to, word, 64 / kMovedLanes);
                continue;
            }
            i = here / kMovedLanes * kMovedLanes;
            to = leave_out_vectors(values, k, to, word, here / kMovedLanes);
        }
#endif
        // Each is written, and stays if it is not marked: no branch has to guess.
        for (; i < here; ++i) {
            copy_element(values + to, values + k + i);
            to += ~word >> i & 1;
        }
    }
}

// The reverse: the first `survivors` values move to the right, to where no mark is; marked ones become `fill`.
template <class Element>
static void open_marked(Element* values, int64_t count, int64_t survivors, const uint64_t* marks, Element fill) {
    int64_t from = survivors;
    for (int64_t k = (count - 1) / 64 * 64; k >= 0; k -= 64) {
        const uint64_t word = marks[k / 64];
        const int64_t here = std::min<int64_t>(64, count - k);
        if (word == 0) {
            from -= here;
            if (from < k) std::memmove(values + k, values + from, static_cast<size_t>(here) * sizeof(Element));
            continue;
        }
        int64_t vectors = 0;
#if defined(__AVX2__)
        if constexpr (sizeof(Element) == 4) {
            if (here == 64) {
                from = open_vectors(values, k, from, word, 64 / kMovedLanes, fill);
                continue;
            }
            vectors = here / kMovedLanes;
        }
#endif
        for (int64_t i = here; i-- > vectors * kMovedLanes;) {
            const bool marked = word >> i & 1;
            from -= !marked;
            copy_element(values + k + i, marked ? &fill : values + from);
        }
#if defined(__AVX2__)
        if constexpr (sizeof(Element) == 4) from = open_vectors(values, k, from, word, vectors, fill);
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

// Calls function(moved) for every array of the wiring, several at a time.
template <class Function>
static void for_each_array(const RewireTask& task, int threads, Function&& function) {
    parallel_for(threads, task.n_carried + 2, [&](int64_t i) {
        if (i == 0) function(wb_carried{task.packed_rows, 4, 0});
        else if (i > 1) function(task.carried[i - 2]);
        else if (task.columns) function(wb_carried{task.columns, 4, 0});
    });
}

// All arrays without the marked.
static void leave_out_of_all(const RewireTask& task, int threads, const RewireScratch& scratch) {
    for_each_array(task, threads, [&](const wb_carried& moved) {
        with_element(moved.size, [&](auto element) {
            leave_out_marked(static_cast<decltype(element)*>(moved.data), task.budget, scratch.marks.data());
        });
    });
}

// All arrays with room for newborns where the marks are, and what those hold there.
static void open_all(const RewireTask& task, int64_t n_born, int threads, const RewireScratch& scratch) {
    for_each_array(task, threads, [&](const wb_carried& moved) {
        with_element(moved.size, [&](auto element) {
            using Element = decltype(element);
            open_marked(static_cast<Element*>(moved.data), task.budget, task.budget - n_born, scratch.marks.data(),
                        static_cast<Element>(moved.fill));
        });
    });
}

}  // namespace wb::WB_ISA
