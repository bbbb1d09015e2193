// The kernels of layers without a state, compiled once per instruction set (isa.h).
#include "isa.h"

namespace wb {
namespace WB_ISA {

// Each file ends with fill_<subject>(KernelTable&), which enters its kernels into the table.
#include "simd.h"

#include "panel.inc.cpp"

#include "linear.inc.cpp"
#include "conv.inc.cpp"

void fill_layers(KernelTable& table) {
    fill_linear(table);
    fill_conv(table);
}

}  // namespace WB_ISA
}  // namespace wb
