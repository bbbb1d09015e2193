// What the files compiled once per instruction set begin with: -DWB_ISA=baseline | v3 | v4 | neon.
//
// Standard headers come first, outside the namespace; the kernel files are then pasted into wb::<isa>, so that the
// same function exists once per instruction set under different names. Inline functions of the standard library do
// not: the linker keeps one copy of each. setup.py links the lowest instruction set first, so the copy it keeps runs
// everywhere. Helper templates that must be fast therefore belong in the kernel files, not in std::.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel.h"
#include "scratch.h"
#include "table.h"

#ifndef WB_ISA
#error "compile with -DWB_ISA=baseline, v3, v4 or neon"
#endif

#define WB_JOIN_(a, b) a##b
#define WB_JOIN(a, b) WB_JOIN_(a, b)
#define WB_STRING_(a) #a
#define WB_STRING(a) WB_STRING_(a)

namespace wb {
namespace WB_ISA {

void fill_layers(KernelTable& table);  // isa_layers.cpp

}  // namespace WB_ISA
}  // namespace wb
