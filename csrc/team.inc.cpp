// A team of threads that walks through phases together: the blocks of a phase are shared out, and the next phase begins
// when all of them are done. For work in many small steps, each of which needs the one before.
//
// One thread leads. Others help as they come: nobody waits for one that the system has not given a core, only for
// blocks that have been taken. Blocks of a phase must not depend on each other, and who takes one must not matter.
#pragma once

#include <atomic>

#include "isa.h"
#include "parallel.h"

namespace wb::WB_ISA {

class Team {
public:
    // Calls run(phase, block) for every block in [0, blocks(phase)) of every phase in [0, phases), phase by phase, on up
    // to `threads` threads. Before the blocks of a phase, prepare(phase) runs alone. Nothing in there may throw.
    template <class Blocks, class Prepare, class Run>
    static void walk(int threads, int64_t phases, Blocks&& blocks, Prepare&& prepare, Run&& run) {
        if (threads <= 1) {
            for (int64_t phase = 0; phase < phases; ++phase) {
                prepare(phase);
                for (int64_t block = 0, count = blocks(phase); block < count; ++block) run(phase, block);
            }
            return;
        }
        Team team;
        parallel_for(threads, threads, [&](int64_t member) {
            if (member == 0) team.lead(phases, blocks, prepare, run);
            else team.help(member % 2 == 1, run);
        });
    }

private:
    // What is left of a phase: its number plus one (0: none yet), and the blocks [first, last).
    struct Left {
        uint64_t phase, first, last;
        explicit Left(uint64_t bits) : phase(bits >> 32), first((bits >> 16) & 0xffff), last(bits & 0xffff) {}
        static uint64_t bits(uint64_t phase, uint64_t first, uint64_t last) { return phase << 32 | first << 16 | last; }
    };
    static constexpr uint64_t kOver = 0xffffffff;

    std::atomic<uint64_t> left_{0};
    alignas(64) std::atomic<int64_t> done_{0};

    // Takes blocks of a phase until none is left. Two threads begin at both ends, so each has nearly the same blocks in
    // every phase, and what they read in its cache.
    template <class Run>
    void work(uint64_t phase, bool from_end, Run& run) {
        for (uint64_t bits = left_.load(std::memory_order_acquire);;) {
            const Left left(bits);
            if (left.phase != phase || left.first >= left.last) return;
            const uint64_t block = from_end ? left.last - 1 : left.first;
            const uint64_t first = from_end ? left.first : block + 1, last = from_end ? block : left.last;
            if (!left_.compare_exchange_weak(bits, Left::bits(phase, first, last), std::memory_order_acq_rel,
                                             std::memory_order_acquire))
                continue;
            run(static_cast<int64_t>(phase - 1), static_cast<int64_t>(block));
            done_.fetch_add(1, std::memory_order_release);
            bits = left_.load(std::memory_order_acquire);
        }
    }

    template <class Blocks, class Prepare, class Run>
    void lead(int64_t phases, Blocks& blocks, Prepare& prepare, Run& run) {
        for (int64_t phase = 0; phase < phases; ++phase) {
            prepare(phase);
            const int64_t count = blocks(phase);
            done_.store(0, std::memory_order_relaxed);
            const uint64_t number = static_cast<uint64_t>(phase) + 1;
            left_.store(Left::bits(number, 0, static_cast<uint64_t>(count)), std::memory_order_release);
            work(number, false, run);
            wait_until([&] { return done_.load(std::memory_order_acquire) == count; });
        }
        left_.store(Left::bits(kOver, 0, 0), std::memory_order_release);
    }

    template <class Run>
    void help(bool from_end, Run& run) {
        for (uint64_t seen = 0;;) {
            wait_until([&] { return Left(left_.load(std::memory_order_acquire)).phase != seen; });
            seen = Left(left_.load(std::memory_order_acquire)).phase;
            if (seen == kOver) return;
            work(seen, from_end, run);
        }
    }
};

}  // namespace wb::WB_ISA
