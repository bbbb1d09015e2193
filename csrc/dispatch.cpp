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

}  // namespace

extern "C" {

int wb_abi_version(void) { return WB_ABI_VERSION; }

const char* wb_isa(void) { return table().isa; }

#define WB_FORWARD(...) , __VA_ARGS__
#define WB_EXPORT_library(result, name, parameters, arguments)
#define WB_EXPORT_layers(result, name, parameters, arguments) \
    result wb_##name parameters { return call(table().name WB_FORWARD arguments); }
#define WB_EXPORT_training WB_EXPORT_layers
#define WB_EACH(unit, result, name, kernel, parameters, arguments) WB_EXPORT_##unit(result, name, parameters, arguments)
#include "each_function.h"

}  // extern "C"
