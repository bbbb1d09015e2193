// Working memory that a thread keeps between calls.
#pragma once

#include <cstddef>

namespace wb {

// What the memory is for; two uses that are alive at the same time need two names.
enum class Scratch { panel, columns, cursors, stack, lines, connections, count };

// At least `bytes` bytes, aligned to a cache line, with undefined content. Valid until the same thread asks for the
// same kind again.
void* scratch(Scratch kind, size_t bytes);

}  // namespace wb
