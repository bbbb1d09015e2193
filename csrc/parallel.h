// parallel_for: the one way kernels use threads.
//
// Work is cut into numbered chunks by the caller; which thread runs a chunk is left open. A kernel gives the same
// bits for every number of threads as long as no chunk depends on `threads` in what it computes, only in what it
// covers.
#pragma once

#include <cstdint>
#include <type_traits>

namespace wb {

using ChunkFunction = void (*)(void* context, int64_t chunk);

// Runs function(context, chunk) for every chunk in [0, chunks) on up to `threads` threads, and returns when all are
// done. Chunks are handed out in order, so one may wait for those before it. With one thread it is a plain loop.
void parallel_run(int threads, int64_t chunks, ChunkFunction function, void* context);

// What a thread does between two looks at what it waits for.
void give_way();
inline __attribute__((always_inline)) void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

// Waits until done() is true. Brief waits spin; longer ones mean that the thread waited for is not running, and give
// it the core.
template <class Done>
inline __attribute__((always_inline)) void wait_until(Done&& done) {
    for (int spins = 0; !done(); ++spins) {
        if (spins < 2000) pause_briefly();
        else give_way();
    }
}

template <class Body>
inline __attribute__((always_inline)) void parallel_for(int threads, int64_t chunks, Body&& body) {
    if (threads <= 1 || chunks <= 1) {
        for (int64_t chunk = 0; chunk < chunks; ++chunk) body(chunk);
        return;
    }
    using Plain = std::remove_reference_t<Body>;
    parallel_run(
        threads, chunks, [](void* context, int64_t chunk) { (*static_cast<Plain*>(context))(chunk); }, &body);
}

}  // namespace wb
