// Picks the kernels for this processor at load, and exports the C interface.
#include <cstdlib>
#include <cstring>
#include <new>

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
    try {
        return kernel(arguments...);
    } catch (const std::bad_alloc&) {
        return WB_NO_MEMORY;
    }
}

}  // namespace

extern "C" {

// ---- library -------------------------------------------------------------------------------------------------------

int wb_abi_version(void) { return WB_ABI_VERSION; }

const char* wb_isa(void) { return table().isa; }

// ---- linear --------------------------------------------------------------------------------------------------------

#define WB_LINEAR(T, name)                                                                                            \
    int wb_linear_forward_##name(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t batch, int64_t n_in,   \
                                 int64_t n_out, int64_t connections, const int64_t* colptr, const int32_t* packed_rows,      \
                                 const T* theta, int bound, const T* bias, int threads) {                             \
        return call(table().linear_forward_##name, x, x_stride, y, y_stride, batch, n_in, n_out, connections, colptr, \
                    packed_rows, theta, bound, bias, threads);                                                               \
    }                                                                                                                 \
    int wb_linear_backward_##name(const T* x, int64_t x_stride, const T* dy, int64_t dy_stride, T* dx,                \
                                  int64_t dx_stride, T* dtheta, int64_t batch, int64_t n_in, int64_t n_out,           \
                                  int64_t connections, const int64_t* colptr, const int32_t* packed_rows, const T* theta,    \
                                  int threads) {                                                                      \
        return call(table().linear_backward_##name, x, x_stride, dy, dy_stride, dx, dx_stride, dtheta, batch, n_in,   \
                    n_out, connections, colptr, packed_rows, theta, threads);                                                \
    }
WB_LINEAR(float, f32)
WB_LINEAR(double, f64)
#undef WB_LINEAR

// ---- conv ----------------------------------------------------------------------------------------------------------

#define WB_CONV(T, name)                                                                                              \
    int wb_conv_forward_##name(const wb_conv* conv, const T* x, T* y, int64_t connections, const int64_t* colptr,     \
                               const int32_t* packed_rows, const T* theta, int bound, const T* bias, int threads) {          \
        return call(table().conv_forward_##name, conv, x, y, connections, colptr, packed_rows, theta, bound, bias, threads); \
    }                                                                                                                 \
    int wb_conv_backward_##name(const wb_conv* conv, const T* x, const T* dy, T* dx, T* dtheta, int64_t connections,  \
                                const int64_t* colptr, const int32_t* packed_rows, const T* theta, int threads) {            \
        return call(table().conv_backward_##name, conv, x, dy, dx, dtheta, connections, colptr, packed_rows, theta, threads);\
    }
WB_CONV(float, f32)
WB_CONV(double, f64)
#undef WB_CONV

// ---- random --------------------------------------------------------------------------------------------------------

void wb_words(uint64_t seed, uint32_t stream, uint64_t step, int64_t n, uint32_t* out) {
    table().words(seed, stream, step, n, out);
}

void wb_normals(uint64_t seed, uint32_t stream, uint64_t step, int64_t first, int64_t n, float* out) {
    table().normals(seed, stream, step, first, n, out);
}

void wb_signs(uint64_t seed, uint32_t stream, const int64_t* positions, int64_t n, int8_t* out) {
    table().signs(seed, stream, positions, n, out);
}

int wb_sample_sorted(int64_t n, int64_t k, uint64_t seed, uint32_t stream, uint64_t step, int64_t* out) {
    return call(table().sample_sorted, n, k, seed, stream, step, out);
}

// ---- update --------------------------------------------------------------------------------------------------------

#define WB_UPDATE(T, name)                                                                                            \
    int64_t wb_update_##name(const wb_rule* rule, int64_t n, T* theta, const T* gradient, T* moment1, T* moment2,     \
                             T* moment2_max, const int32_t* born, const wb_drift_and_noise* drifts, int64_t n_drifts,              \
                             int64_t* dead, int64_t capacity, int threads) {                                          \
        return call(table().update_##name, rule, n, theta, gradient, moment1, moment2, moment2_max, born, drifts,      \
                    n_drifts, dead, capacity, threads);                                                                \
    }                                                                                                                 \
    int64_t wb_dead_##name(const T* theta, int64_t n, int64_t* dead, int64_t capacity) {                              \
        return table().dead_##name(theta, n, dead, capacity);                                                         \
    }                                                                                                                 \
    int wb_all_finite_##name(const T* values, int64_t n) { return table().all_finite_##name(values, n); }
WB_UPDATE(float, f32)
WB_UPDATE(double, f64)
#undef WB_UPDATE

// ---- rewire --------------------------------------------------------------------------------------------------------

int64_t wb_rewire(int64_t budget, int64_t layers, const int64_t* n_in, const int64_t* n_out, int64_t* colptr,
                  int32_t* packed_rows, const wb_carried* carried, int64_t n_carried, const int64_t* dead, int64_t n_dead,
                  uint64_t seed, int32_t wiring_index, int64_t step, const double* shares, int64_t* born,
                  int64_t* died, int threads) {
    return call(table().rewire, budget, layers, n_in, n_out, colptr, packed_rows, carried, n_carried, dead, n_dead, seed,
                wiring_index, step, shares, born, died, threads);
}

int wb_wiring_is_good(int64_t budget, int64_t layers, const int64_t* n_in, const int64_t* n_out, const int64_t* colptr,
                      const int32_t* packed_rows) {
    return table().wiring_is_good(budget, layers, n_in, n_out, colptr, packed_rows);
}

// ---- step ----------------------------------------------------------------------------------------------------------

int64_t wb_step_f32(const wb_step* task, int threads) { return call(table().step_f32, task, threads); }

int64_t wb_step_f64(const wb_step* task, int threads) { return call(table().step_f64, task, threads); }

// ---- fused step ----------------------------------------------------------------------------------------------------

int64_t wb_fused_steps_f32(const wb_fused_run* run, int32_t* status) {
    return call(table().fused_steps_f32, run, status);
}

// ---- stack ---------------------------------------------------------------------------------------------------------

int wb_stack_forward_f32(const wb_stack_layer* layers, int64_t n_layers, const float* x, int64_t x_stride,
                         int64_t batch, float* kept, float* y, int64_t y_stride) {
    return call(table().stack_forward_f32, layers, n_layers, x, x_stride, batch, kept, y, y_stride);
}

int wb_stack_backward_f32(const wb_stack_layer* layers, int64_t n_layers, const float* x, int64_t x_stride,
                          int64_t batch, const float* kept, const float* dy, int64_t dy_stride, float* dx,
                          int64_t dx_stride, float* const* gradients) {
    return call(table().stack_backward_f32, layers, n_layers, x, x_stride, batch, kept, dy, dy_stride, dx, dx_stride,
                gradients);
}

// ---- recurrent -----------------------------------------------------------------------------------------------------

#define WB_RECURRENT(name)                                                                                            \
    int wb_recurrent_forward_##name(const wb_recurrent* task, int threads) {                                          \
        return call(table().recurrent_forward_##name, task, threads);                                                 \
    }                                                                                                                 \
    int wb_recurrent_backward_##name(const wb_recurrent* task, const wb_recurrent_gradients* gradients,               \
                                     int threads) {                                                                   \
        return call(table().recurrent_backward_##name, task, gradients, threads);                                     \
    }
WB_RECURRENT(f32)
WB_RECURRENT(f64)
#undef WB_RECURRENT

}  // extern "C"
