// The shift of segments between events, the same for every array of a wiring.
//
// A segment moves by the newborns before it less the dead before it. Segments that move left are done from left to
// right, then those that move right from right to left: a target never covers a segment that has yet to move.
#pragma once

#include "rewire_marks.inc.cpp"

namespace wb::WB_ISA {

// Segments that move, and the newborns' places in the new order.
static void shift_plan(const int64_t* dead, int64_t n_dead, RewireScratch& scratch) {
    scratch.left.clear();
    scratch.right.clear();
    int64_t begin = 0, shift = 0, d = 0;
    const auto close = [&](int64_t end) {
        if (end > begin && shift != 0) (shift < 0 ? scratch.left : scratch.right).push_back(Segment{begin, end, shift});
        begin = end;
    };
    const auto remove_until = [&](int64_t place) {
        for (; d < n_dead && dead[d] < place; ++d) {
            close(dead[d]);
            begin = dead[d] + 1;
            --shift;
        }
    };
    for (Newborn& newborn : scratch.newborns) {
        remove_until(newborn.place);
        close(newborn.place);
        newborn.target = newborn.place + shift;
        ++shift;
    }
    remove_until(std::numeric_limits<int64_t>::max());
}

// memmove to the left and to the right, with the source fetched for writing well ahead: arrays that do not fit the
// cache move a third faster. Four vectors are loaded before the first is stored, so close ranges may overlap.
constexpr int64_t kMoveBytes = 4 * 32;
constexpr int64_t kMoveAhead = 3072;

static void move_left(char* to, const char* from, int64_t bytes) {
    int64_t i = 0;
    for (; i + kMoveBytes <= bytes; i += kMoveBytes) {
        __builtin_prefetch(from + i + kMoveAhead, 1);
        __builtin_prefetch(from + i + kMoveAhead + 64, 1);
        Vec<int8_t, 32> part[4];
        for (int j = 0; j < 4; ++j) part[j] = load<int8_t, 32>(from + i + 32 * j);
        for (int j = 0; j < 4; ++j) store<int8_t, 32>(to + i + 32 * j, part[j]);
    }
    std::memmove(to + i, from + i, static_cast<size_t>(bytes - i));
}

static void move_right(char* to, const char* from, int64_t bytes) {
    int64_t i = bytes;
    for (; i >= kMoveBytes; i -= kMoveBytes) {
        __builtin_prefetch(from + i - kMoveAhead, 1);
        __builtin_prefetch(from + i - kMoveAhead - 64, 1);
        Vec<int8_t, 32> part[4];
        for (int j = 0; j < 4; ++j) part[j] = load<int8_t, 32>(from + i - kMoveBytes + 32 * j);
        for (int j = 0; j < 4; ++j) store<int8_t, 32>(to + i - kMoveBytes + 32 * j, part[j]);
    }
    std::memmove(to, from, static_cast<size_t>(i));
}

static void move_segments(char* data, int64_t size, int64_t budget, const RewireScratch& scratch) {
    const bool large = budget * size > int64_t{1} << 20;
    for (const Segment& s : scratch.left) {
        const int64_t bytes = (s.end - s.begin) * size;
        const char* from = data + s.begin * size;
        if (large) move_left(data + (s.begin + s.shift) * size, from, bytes);
        else std::memmove(data + (s.begin + s.shift) * size, from, static_cast<size_t>(bytes));
    }
    for (size_t i = scratch.right.size(); i-- > 0;) {
        const Segment& s = scratch.right[i];
        const int64_t bytes = (s.end - s.begin) * size;
        const char* from = data + s.begin * size;
        if (large) move_right(data + (s.begin + s.shift) * size, from, bytes);
        else std::memmove(data + (s.begin + s.shift) * size, from, static_cast<size_t>(bytes));
    }
}

template <class Element, class Value>
static void move_array(void* data, int64_t budget, const RewireScratch& scratch, Value&& value) {
    move_segments(static_cast<char*>(data), sizeof(Element), budget, scratch);
    for (const Newborn& newborn : scratch.newborns) static_cast<Element*>(data)[newborn.target] = static_cast<Element>(value(newborn));
}

static void move_riders(const RewireTask& task, const int64_t* dead, int64_t n_dead, int threads, RewireScratch& scratch) {
    shift_plan(dead, n_dead, scratch);
    constexpr int64_t kParallelBudget = 400000;  // below, a second thread costs more than it gives
    parallel_for(task.budget < kParallelBudget ? 1 : threads, task.n_carried + 2, [&](int64_t i) {
        if (i == 0) {
            move_array<int32_t>(task.packed_rows, task.budget, scratch, [](const Newborn& newborn) { return newborn.packed_rows; });
        } else if (i == 1) {
            const auto column = [](const Newborn& newborn) { return static_cast<int32_t>(newborn.column); };
            if (task.columns) move_array<int32_t>(task.columns, task.budget, scratch, column);
        } else {
            const wb_carried& moved = task.carried[i - 2];
            const auto fill = [&](const Newborn&) { return moved.fill; };
            with_element(moved.size, [&](auto element) {
                move_array<decltype(element)>(moved.data, task.budget, scratch, fill);
            });
        }
    });
}

}  // namespace wb::WB_ISA
