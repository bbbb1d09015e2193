// The kernels of layers without a state, compiled once per instruction set (isa.h).
#include "conv.inc.cpp"
#include "conv_winograd.inc.cpp"
#include "csr_input.inc.cpp"
#include "dense.inc.cpp"
#include "image_norm_pool.inc.cpp"
#include "image_pieces.inc.cpp"
#include "image_stem.inc.cpp"
#include "linear.inc.cpp"

namespace wb::WB_ISA {

void fill_layers(KernelTable& table) {
#define WB_FILL_library(name, kernel)
#define WB_FILL_training(name, kernel)
#define WB_FILL_layers(name, kernel) table.name = kernel;
#define WB_EACH(unit, result, name, kernel, parameters, arguments) WB_FILL_##unit(name, (kernel))
#include "each_function.h"
}

}  // namespace wb::WB_ISA
