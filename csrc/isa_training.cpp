// All other kernels, and the table of all, compiled once per instruction set (isa.h). Two files, because two compilers
// side by side are done sooner.
#include "isa.h"

namespace wb {
namespace WB_ISA {

// Each file ends with fill_<subject>(KernelTable&), which enters its kernels into the table.
#include "simd.h"

#include "panel.inc.cpp"

#include "random.inc.cpp"
#include "update.inc.cpp"
#include "rewire.inc.cpp"
#include "step.inc.cpp"
#include "fused.inc.cpp"
#include "stack.inc.cpp"
#include "recurrent.inc.cpp"

static KernelTable make_table() {
    KernelTable table;
    table.isa = WB_STRING(WB_ISA);
    fill_layers(table);
    fill_random(table);
    fill_update(table);
    fill_rewire(table);
    fill_step(table);
    fill_fused(table);
    fill_stack(table);
    fill_recurrent(table);
    return table;
}

}  // namespace WB_ISA
}  // namespace wb

const wb::KernelTable* WB_JOIN(wb_table_, WB_ISA)() {
    static const wb::KernelTable table = wb::WB_ISA::make_table();
    return &table;
}
