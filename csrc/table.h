// One table of kernels per instruction set. dispatch.cpp picks a table at load and calls through it.
#pragma once

#include "wirebound.h"

// A field has the name and the type of the exported function it stands behind, without the wb_ prefix.
#define WB_FIELD(name) decltype(&wb_##name) name = nullptr

namespace wb {

struct KernelTable {
    const char* isa = nullptr;

    // linear
    WB_FIELD(linear_forward_f32);
    WB_FIELD(linear_forward_f64);
    WB_FIELD(linear_backward_f32);
    WB_FIELD(linear_backward_f64);

    // conv
    WB_FIELD(conv_forward_f32);
    WB_FIELD(conv_forward_f64);
    WB_FIELD(conv_backward_f32);
    WB_FIELD(conv_backward_f64);

    // random
    WB_FIELD(words);
    WB_FIELD(normals);
    WB_FIELD(signs);
    WB_FIELD(sample_sorted);

    // update
    WB_FIELD(update_f32);
    WB_FIELD(update_f64);
    WB_FIELD(dead_f32);
    WB_FIELD(dead_f64);
    WB_FIELD(all_finite_f32);
    WB_FIELD(all_finite_f64);

    // rewire
    WB_FIELD(rewire);
    WB_FIELD(wiring_is_good);

    // step
    WB_FIELD(step_f32);
    WB_FIELD(step_f64);

    // fused step
    WB_FIELD(fused_steps_f32);

    // stack
    WB_FIELD(stack_forward_f32);
    WB_FIELD(stack_backward_f32);

    // recurrent
    WB_FIELD(recurrent_forward_f32);
    WB_FIELD(recurrent_forward_f64);
    WB_FIELD(recurrent_backward_f32);
    WB_FIELD(recurrent_backward_f64);
};

}  // namespace wb

#undef WB_FIELD

// Defined by isa_training.cpp, once per instruction set it is compiled for.
const wb::KernelTable* wb_table_baseline();
const wb::KernelTable* wb_table_v3();
const wb::KernelTable* wb_table_v4();
const wb::KernelTable* wb_table_neon();
