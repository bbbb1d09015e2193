// What the linear kernels share: the layer, the sign, the widths of panels, and how much memory a panel may take.

// A layer as the kernels see it (wirebound.h): connection k of column c runs over [begin(c), begin(c + 1)).
template <class T>
struct Layer {
    int64_t n_in, n_out;
    const int64_t* colptr;
    const int32_t* code;
    const T* theta;

    WB_INLINE int64_t begin(int64_t column) const { return colptr[column] - colptr[0]; }
    WB_INLINE int64_t connections() const { return n_in > 0 ? begin(n_in) : 0; }
};

WB_INLINE int64_t row_of(int32_t code) { return code & 0x7fffffff; }

// -value where the code's top bit is set.
WB_INLINE float with_sign(float value, int32_t code) {
    int32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits ^= code & INT32_MIN;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}
WB_INLINE double with_sign(double value, int32_t code) {
    int64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits ^= static_cast<int64_t>(static_cast<uint64_t>(code & INT32_MIN) << 32);
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

// sign * theta in every lane. Both broadcasts come straight from memory, so no value crosses between register files.
template <class T, int Bytes>
WB_INLINE Vec<T, Bytes> weight_splat(const T* theta, const int32_t* code) {
    if constexpr (sizeof(T) == 4) {
        const auto sign = (Vec<int32_t, Bytes>{} + *code) & INT32_MIN;
        return (Vec<T, Bytes>)((Vec<int32_t, Bytes>)splat<T, Bytes>(*theta) ^ sign);
    } else {
        return splat<T, Bytes>(with_sign(*theta, *code));
    }
}

// Panels are 16, 32, 64 or 128 bytes a feature: up to 32 floats or 16 doubles.
constexpr int kPanelBytes = 128;

// Beyond this a panel is cut into tiles of rows: memory stays small whatever the layer's size. The tile of a thread
// then still fits a last-level cache.
constexpr int64_t kTileBytes = int64_t{8} << 20;

// A panel larger than this is not in the second-level cache, and its rows are worth prefetching.
constexpr int64_t kPrefetchBytes = int64_t{800} << 10;
constexpr int64_t kPrefetchAhead = 24;

// Columns of x (and dx) in transposed form at a time.
constexpr int64_t kBlockColumns = 64;

// Calls function(std::integral_constant<int, bytes>) with the narrowest panel that holds `samples` samples.
template <class T, class Function>
WB_INLINE void with_panel_bytes(int64_t samples, Function&& function) {
    const int64_t bytes = samples * static_cast<int64_t>(sizeof(T));
    if (bytes <= 16) function(std::integral_constant<int, 16>{});
    else if (bytes <= 32) function(std::integral_constant<int, 32>{});
    else if (bytes <= 64) function(std::integral_constant<int, 64>{});
    else function(std::integral_constant<int, 128>{});
}

// Below this many multiply-adds a second thread costs more than it gives.
constexpr int64_t kParallelWork = 200000;
