// How a batch is cut into panels, [feature][samples side by side]: as wide as registers and caches like them.
//
// The kernels of layers take panels of 32, 64 or 128 bytes a feature. The fused step and the stack know their samples in
// vectors of eight floats, and take panels of one to four.
#pragma once

#include "simd.h"

namespace wb::WB_ISA {

// Up to 32 floats or 16 doubles.
constexpr int kPanelBytes = 128;
template <class T>
constexpr int64_t widest_samples = kPanelBytes / static_cast<int64_t>(sizeof(T));

// Calls function(std::integral_constant<int, bytes>) with the first of these widths that holds `samples` samples.
template <class T, int Bytes, int... Wider, class Function>
WB_INLINE void with_width(int64_t samples, Function&& function) {
    if constexpr (sizeof...(Wider) == 0) function(std::integral_constant<int, Bytes>{});
    else if (samples * static_cast<int64_t>(sizeof(T)) <= Bytes) function(std::integral_constant<int, Bytes>{});
    else with_width<T, Wider...>(samples, function);
}

template <class T, class Function>
WB_INLINE void with_panel_bytes(int64_t samples, Function&& function) {
    with_width<T, 32, 64, kPanelBytes>(samples, function);
}

// The same in vectors of eight floats: function(std::integral_constant<int, V>).
template <class Function>
WB_INLINE void with_vectors(int64_t samples, Function&& function) {
    with_width<float, 32, 64, 96, kPanelBytes>(
        samples, [&](auto bytes) { function(std::integral_constant<int, decltype(bytes)::value / 32>{}); });
}

constexpr int64_t kMostSamples = widest_samples<float>;

// Samples a panel of the fused step: as few panels as possible, about equally full. All of a batch have the same V.
WB_INLINE int64_t panel_samples(int64_t batch) {
    const int64_t panels = (batch + kMostSamples - 1) / kMostSamples;
    return panels > 0 ? (batch + panels - 1) / panels : 0;
}

template <int V>
WB_INLINE void load_row(const float* panel, int64_t row, Floats8* to) {
    for (int v = 0; v < V; ++v) to[v] = load<float, 32>(panel + (row * V + v) * 8);
}

}  // namespace wb::WB_ISA
