// All other kernels, and the table of all, compiled once per instruction set (isa.h). Two files, because two compilers
// side by side are done sooner.
#include "find.inc.cpp"
#include "fused.inc.cpp"
#include "random.inc.cpp"
#include "recurrent.inc.cpp"
#include "rewire.inc.cpp"
#include "stack.inc.cpp"
#include "step.inc.cpp"
#include "update.inc.cpp"

namespace wb::WB_ISA {

void fill_layers(KernelTable& table);  // isa_layers.cpp

static KernelTable make_table() {
    KernelTable table;
    table.isa = WB_STRING(WB_ISA);
    fill_layers(table);
#define WB_FILL_library(name, kernel)
#define WB_FILL_layers(name, kernel)
#define WB_FILL_training(name, kernel) table.name = kernel;
#define WB_EACH(unit, result, name, kernel, parameters, arguments) WB_FILL_##unit(name, (kernel))
#include "each_function.h"
    return table;
}

}  // namespace wb::WB_ISA

const wb::KernelTable* WB_JOIN(wb_table_, WB_ISA)() {
    static const wb::KernelTable table = wb::WB_ISA::make_table();
    return &table;
}
