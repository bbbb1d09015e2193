// One table of kernels per instruction set. dispatch.cpp picks a table at load and calls through it.
#pragma once

#include "wirebound.h"

namespace wb {

// A field has the name and the type of the exported function it stands behind, without the wb_ prefix.
struct KernelTable {
    const char* isa = nullptr;
#define WB_FIELD_library(name)
#define WB_FIELD_layers(name) decltype(&wb_##name) name = nullptr;
#define WB_FIELD_training(name) decltype(&wb_##name) name = nullptr;
#define WB_EACH(unit, result, name, kernel, parameters, arguments) WB_FIELD_##unit(name)
#include "each_function.h"
#undef WB_FIELD_library
#undef WB_FIELD_layers
#undef WB_FIELD_training
};

}  // namespace wb

// Defined by isa_training.cpp, once per instruction set it is compiled for.
const wb::KernelTable* wb_table_baseline();
const wb::KernelTable* wb_table_v3();
const wb::KernelTable* wb_table_v4();
const wb::KernelTable* wb_table_neon();
