// Working memory that a thread keeps between calls.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

namespace wb {

// What the memory is for; two uses that are alive at the same time need two names.
enum class Scratch { panel, columns, cursors, stack, lines, connections, recurrent, recurrent_links, recurrent_sums, block,
                     block_activations, count };

// At least `bytes` bytes, aligned to a cache line, with undefined content. Valid until the same thread asks for the
// same kind again.
void* scratch(Scratch kind, size_t bytes);

// Asks for large pages where memory that has not been written yet allows them: the first write to each page costs
// microseconds, more than the work of a recurrent layer on it.
void prefer_large_pages(void* data, size_t bytes);

// Frees each of some vectors that has grown large. Small ones are kept, because the next call would ask for them again.
template <class... Vectors>
void give_back_if_large(Vectors&... vectors) {
    constexpr size_t kLarge = size_t{16} << 20;
    const auto give_back = [](auto& vector) {
        if (vector.capacity() * sizeof(vector[0]) > kLarge) std::remove_reference_t<decltype(vector)>().swap(vector);
    };
    (give_back(vectors), ...);
}

}  // namespace wb
