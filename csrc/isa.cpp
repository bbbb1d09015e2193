// All kernels as one translation unit, compiled once per instruction set: -DWB_ISA=baseline | v3 | v4 | neon.
//
// Standard headers come first, outside the namespace; the kernel files are then pasted into wb::<isa>, so that the
// same function exists once per instruction set under different names. Inline functions of the standard library do
// not: the linker keeps one copy of each. setup.py links the lowest instruction set first, so the copy it keeps runs
// everywhere. Helper templates that must be fast therefore belong in the kernel files, not in std::.
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

// Each file ends with fill_<subject>(KernelTable&), which enters its kernels into the table.
#include "simd.h"

#include "linear.inc.cpp"
#include "conv.inc.cpp"
#include "random.inc.cpp"
#include "update.inc.cpp"
#include "rewire.inc.cpp"
#include "step.inc.cpp"
#include "fused.inc.cpp"
#include "stack.inc.cpp"

static KernelTable make_table() {
    KernelTable table;
    table.isa = WB_STRING(WB_ISA);
    fill_linear(table);
    fill_conv(table);
    fill_random(table);
    fill_update(table);
    fill_rewire(table);
    fill_step(table);
    fill_fused(table);
    fill_stack(table);
    return table;
}

}  // namespace WB_ISA
}  // namespace wb

const wb::KernelTable* WB_JOIN(wb_table_, WB_ISA)() {
    static const wb::KernelTable table = wb::WB_ISA::make_table();
    return &table;
}
