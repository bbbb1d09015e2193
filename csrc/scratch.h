// Working memory that a thread keeps between calls.
#pragma once

#include <cstddef>

namespace wb {

// What the memory is for; two uses that are alive at the same time need two names.
enum class Scratch { panel, columns, cursors, stack, lines, connections, recurrent, recurrent_links, recurrent_sums, count };

// At least `bytes` bytes, aligned to a cache line, with undefined content. Valid until the same thread asks for the
// same kind again.
void* scratch(Scratch kind, size_t bytes);

// Asks for large pages where memory that has not been written yet allows them: the first write to each page costs
// microseconds, more than the work of a recurrent layer on it.
void prefer_large_pages(void* data, size_t bytes);

}  // namespace wb
