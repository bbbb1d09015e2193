// Goes through kernels.def once for every exported function. Define, then include this (it undefines it again):
//
//   WB_EACH(unit, result, name, kernel, parameters, arguments)
//
// name: without wb_, with _f32 or _f64 where there are two; kernel: what the instruction sets have behind it.

#ifndef WB_EACH  // as an editor opens this file, by itself
#define WB_EACH(unit, result, name, kernel, parameters, arguments)
#endif

#define WB_FUNCTION(unit, result, name, parameters, arguments) \
    WB_EACH(unit, result, name, entry_##name, parameters, arguments)
#define WB_REAL_FUNCTION(unit, result, name, parameters, arguments) \
    WB_EACH(unit, result, name##_f32, entry_##name<WB_REAL>, parameters, arguments)
#define WB_REAL float
#include "kernels.def"
#undef WB_FUNCTION
#undef WB_REAL_FUNCTION
#undef WB_REAL

#define WB_FUNCTION(unit, result, name, parameters, arguments)
#define WB_REAL_FUNCTION(unit, result, name, parameters, arguments) \
    WB_EACH(unit, result, name##_f64, entry_##name<WB_REAL>, parameters, arguments)
#define WB_REAL double
#include "kernels.def"
#undef WB_FUNCTION
#undef WB_REAL_FUNCTION
#undef WB_REAL

#undef WB_EACH
