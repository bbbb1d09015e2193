// Threads: a small pool of our own, as large as torch's number of threads asks for.
//
// Sharing torch's OpenMP team was measured and given up: its barrier waits for every thread, so where another process
// holds a core, a kernel took 50 times longer. Here a worker that has not been given a core is not waited for.
#include "parallel.h"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace wb {
namespace {

// One parallel region: threads take chunks from the counter until none is left.
struct Region {
    ChunkFunction function;
    void* context;
    int64_t chunks;
    std::atomic<int64_t> next{0};
    std::atomic<bool> no_memory{false};

    // Nothing may be thrown out of a worker; the caller throws for all of them. Chunks that others wait for allocate
    // nothing, so none waits for one that failed.
    void work() {
        for (;;) {
            const int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
            if (chunk >= chunks) return;
            try {
                function(context, chunk);
            } catch (const std::bad_alloc&) {
                no_memory.store(true, std::memory_order_relaxed);
            }
        }
    }
};

// Workers wait for a new region number, first spinning, then asleep. The caller works too, and when no chunk is left it
// waits only for the workers that took part: one that the system has not woken yet is not missed. One region runs at a
// time; a caller that finds the pool busy (another Python thread, or a kernel inside a kernel) works alone.
class Pool {
public:
    void run(int threads, Region& region) {
        std::unique_lock<std::mutex> owner(owner_, std::try_to_lock);
        if (!owner.owns_lock()) return region.work();
        {
            std::lock_guard<std::mutex> lock(mutex_);
            helpers_ = threads - 1;
            try {
                for (; workers_ < helpers_; ++workers_)
                    std::thread(&Pool::loop, this, workers_, generation_.load()).detach();
            } catch (const std::system_error&) {
                // The system gives no more threads: those that are there do the work.
            }
            region_ = &region;
            generation_.fetch_add(1, std::memory_order_release);
        }
        wake_.notify_all();
        region.work();
        {
            std::lock_guard<std::mutex> lock(mutex_);
            region_ = nullptr;
        }
        wait_until([&] { return active_.load(std::memory_order_acquire) == 0; });
    }

private:
    static constexpr int kSpins = 4000;  // some 50 microseconds: longer than the gap between two layers

    void loop(int index, uint64_t seen) {
        for (;;) {
            for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin)
                pause_briefly();
            Region* region;
            {
                std::unique_lock<std::mutex> lock(mutex_);
                wake_.wait(lock, [&] { return generation_.load(std::memory_order_relaxed) != seen; });
                seen = generation_.load(std::memory_order_relaxed);
                region = index < helpers_ ? region_ : nullptr;
                if (region != nullptr) active_.fetch_add(1, std::memory_order_relaxed);
            }
            if (region == nullptr) continue;
            region->work();
            active_.fetch_sub(1, std::memory_order_release);
        }
    }

    std::mutex owner_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<uint64_t> generation_{0};
    std::atomic<int> active_{0};
    Region* region_ = nullptr;
    int workers_ = 0;
    int helpers_ = 0;
};

// A fork copies the pool without its threads, so the child starts with a new one. The old pool is left alone: its
// locks may be held by threads that no longer exist. Pools are never destroyed, because workers may outlive main.
std::atomic<Pool*> the_pool{nullptr};

Pool& pool() {
    Pool* existing = the_pool.load(std::memory_order_acquire);
    if (existing != nullptr) return *existing;
    static const int registered = pthread_atfork(nullptr, nullptr, [] { the_pool.store(nullptr); });
    (void)registered;
    Pool* created = new Pool;
    if (the_pool.compare_exchange_strong(existing, created)) return *created;
    delete created;
    return *existing;
}

}  // namespace

void give_way() { std::this_thread::yield(); }

void parallel_run(int threads, int64_t chunks, ChunkFunction function, void* context) {
    Region region{function, context, chunks};
    if (threads > chunks) threads = static_cast<int>(chunks);
    if (threads <= 1) region.work();
    else pool().run(threads, region);
    if (region.no_memory) throw std::bad_alloc();
}

}  // namespace wb
