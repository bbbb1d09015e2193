// What the kernel files stand on: the standard headers, and the namespace they are in.
//
// Kernel files are compiled once per instruction set, -DWB_ISA=baseline | v3 | v4 | neon, in wb::<isa>: the same function
// exists once per set under different names. Inline functions of the standard library do not: the linker keeps one copy
// of each. setup.py links the lowest instruction set first, so the copy it keeps runs everywhere. Helper templates that
// must be fast therefore belong in the kernel files, not in std::.
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
#define WB_ISA baseline  // as an editor opens a file, by itself
#endif

#define WB_JOIN_(a, b) a##b
#define WB_JOIN(a, b) WB_JOIN_(a, b)
#define WB_STRING_(a) #a
#define WB_STRING(a) WB_STRING_(a)
