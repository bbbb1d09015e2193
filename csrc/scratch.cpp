#include "scratch.h"

#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace wb {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

struct Buffer {
    void* data = nullptr;
    size_t size = 0;

    ~Buffer() { std::free(data); }

    void grow(size_t bytes) {
        const size_t step = bytes >= kHugePage ? kHugePage : size_t{4096};
        bytes = (bytes + step - 1) / step * step;
        std::free(data);
        data = nullptr;
        size = 0;
        if (posix_memalign(&data, bytes >= kHugePage ? kHugePage : kLine, bytes) != 0) throw std::bad_alloc();
        size = bytes;
#if defined(__linux__)
        // Large panels are read in random order: with 4 KB pages every access would also miss the TLB.
        if (bytes >= kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
#endif
    }
};

thread_local Buffer buffers[static_cast<int>(Scratch::count)];

}  // namespace

void* scratch(Scratch kind, size_t bytes) {
    Buffer& buffer = buffers[static_cast<int>(kind)];
    if (buffer.size < bytes) buffer.grow(bytes);
    return buffer.data;
}

void prefer_large_pages(void* data, size_t bytes) {
#if defined(__linux__)
    const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + kHugePage - 1) / kHugePage * kHugePage;
    const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / kHugePage * kHugePage;
    if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#else
    (void)data, (void)bytes;
#endif
}

}  // namespace wb
