// Picks the kernels for this processor at load, and exports the C interface.
#include <cstdlib>
#include <cstring>
#include <exception>

#include "parallel.h"
#include "table.h"

namespace {

using wb::KernelTable;

#if defined(__x86_64__) || defined(_M_X64)
// The instruction sets this processor can run, best first; the last one always can.
const KernelTable* choose(const char* wanted) {
    __builtin_cpu_init();
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2");
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
    // WIREBOUND_ISA asks for a lower set, so that tests can run them all; one that cannot run here is ignored.
    const bool any = wanted == nullptr || *wanted == '\0';
    if (v4 && (any || std::strcmp(wanted, "v4") == 0)) return wb_table_v4();
    if (v3 && (any || std::strcmp(wanted, "baseline") != 0)) return wb_table_v3();
    return wb_table_baseline();
}
#elif defined(__aarch64__)
const KernelTable* choose(const char*) { return wb_table_neon(); }
#else
const KernelTable* choose(const char*) { return wb_table_baseline(); }
#endif

const KernelTable& table() {
    static const KernelTable* const chosen = choose(std::getenv("WIREBOUND_ISA"));
    return *chosen;
}

// Nothing is thrown through the C interface.
template <class Kernel, class... Arguments>
auto call(Kernel kernel, Arguments... arguments) -> decltype(kernel(arguments...)) {
    using Result = decltype(kernel(arguments...));
    try {
        return kernel(arguments...);
    } catch (const std::exception&) {  // no memory, or no thread
        return Result(WB_NO_MEMORY);
    }
}

template <class T, class Kernel>
int forward_packed(Kernel linear, Kernel dense, const wb_linear_forward& p) {
    return call(p.blocks ? dense : linear, static_cast<const T*>(p.x), p.x_stride, static_cast<T*>(p.y), p.y_stride,
                p.batch, p.n_in, p.n_out, p.connections, p.colptr, p.packed_rows, static_cast<const T*>(p.theta),
                static_cast<int>(p.bound), static_cast<const T*>(p.bias), static_cast<int>(p.threads));
}

template <class T, class Kernel>
int backward_packed(Kernel linear, Kernel dense, const wb_linear_backward& p) {
    return call(p.blocks ? dense : linear, static_cast<const T*>(p.x), p.x_stride, static_cast<const T*>(p.dy),
                p.dy_stride, static_cast<T*>(p.dx), p.dx_stride, static_cast<T*>(p.dtheta), p.batch, p.n_in, p.n_out,
                p.connections, p.colptr, p.packed_rows, static_cast<const T*>(p.theta), static_cast<int>(p.threads));
}

}  // namespace

extern "C" {

int wb_abi_version(void) { return WB_ABI_VERSION; }

const char* wb_isa(void) { return table().isa; }

int wb_linear_forward_packed_f32(const wb_linear_forward* packed) {
    return forward_packed<float>(table().linear_forward_f32, table().dense_forward_f32, *packed);
}
int wb_linear_forward_packed_f64(const wb_linear_forward* packed) {
    return forward_packed<double>(table().linear_forward_f64, table().dense_forward_f64, *packed);
}
int wb_linear_backward_packed_f32(const wb_linear_backward* packed) {
    return backward_packed<float>(table().linear_backward_f32, table().dense_backward_f32, *packed);
}
int wb_linear_backward_packed_f64(const wb_linear_backward* packed) {
    return backward_packed<double>(table().linear_backward_f64, table().dense_backward_f64, *packed);
}
int wb_stack_forward_packed_f32(const wb_stack_call* p) {
    return call(table().stack_forward_f32, p->layers, p->n_layers, p->x, p->x_stride, p->batch, p->kept, p->y,
                p->y_stride);
}
int wb_stack_backward_packed_f32(const wb_stack_call* p) {
    const auto gradients = reinterpret_cast<float* const*>(p + 1);
    return call(table().stack_backward_f32, p->layers, p->n_layers, p->x, p->x_stride, p->batch, p->kept, p->y,
                p->y_stride, p->dx, p->dx_stride, gradients);
}

#define WB_FORWARD(...) , __VA_ARGS__
#define WB_EXPORT_library(result, name, parameters, arguments)
#define WB_EXPORT_layers(result, name, parameters, arguments) \
    result wb_##name parameters { return call(table().name WB_FORWARD arguments); }
#define WB_EXPORT_training WB_EXPORT_layers
#define WB_EACH(unit, result, name, kernel, parameters, arguments) WB_EXPORT_##unit(result, name, parameters, arguments)
#include "each_function.h"

}  // extern "C"
