// What the kernels of layers share: the layer, the sign, and how much memory a panel may take.
#pragma once

#include "panels.inc.cpp"

namespace wb::WB_ISA {

// A layer as the kernels see it (wirebound.h): connection k of column c runs over [begin(c), begin(c + 1)).
template <class T>
struct Layer {
    int64_t n_in, n_out;
    const int64_t* colptr;
    const int32_t* packed_rows;
    const T* theta;

    WB_INLINE int64_t begin(int64_t column) const { return colptr[column] - colptr[0]; }
    WB_INLINE int64_t connections() const { return n_in > 0 ? begin(n_in) : 0; }
};

WB_INLINE int64_t row_of(int32_t packed_rows) { return packed_rows & 0x7fffffff; }

// -value where the packed row's top bit is set.
WB_INLINE float with_sign(float value, int32_t packed_rows) {
    int32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits ^= packed_rows & INT32_MIN;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}
WB_INLINE double with_sign(double value, int32_t packed_rows) {
    int64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits ^= static_cast<int64_t>(static_cast<uint64_t>(packed_rows & INT32_MIN) << 32);
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

// The same for vectors; one packed row per lane.
template <class T, int Bytes>
WB_INLINE Vec<T, Bytes> with_signs(Vec<T, Bytes> values, Vec<int32_t, Bytes / sizeof(T) * 4> codes) {
    if constexpr (sizeof(T) == 4) return (Vec<T, Bytes>)((BitsVec<T, Bytes>)values ^ (codes & INT32_MIN));
    else {
        const auto wide = __builtin_convertvector(codes, BitsVec<T, Bytes>);  // keeps the sign
        return (Vec<T, Bytes>)((BitsVec<T, Bytes>)values ^ (wide & INT64_MIN));
    }
}

// Beyond this a panel is cut into tiles of rows: memory stays small whatever the layer's size. The tile of a thread
// then still fits a last-level cache.
constexpr int64_t kTileBytes = int64_t{8} << 20;

// A panel larger than this is not in the second-level cache, and its rows are worth prefetching.
constexpr int64_t kPrefetchBytes = int64_t{kVectorBytes == 64 ? 640 : 400} << 10;
constexpr int64_t kPrefetchAhead = 24;

template <int Bytes>
WB_INLINE void prefetch(uintptr_t address) {
    for (int line = 0; line < Bytes; line += 64) __builtin_prefetch(reinterpret_cast<const void*>(address + line));
}

// Columns of x (and dx) in transposed form at a time.
constexpr int64_t kBlockColumns = 64;

// How a kernel gets at the rows of a panel: it is in the cache; it is not, and rows are prefetched some connections
// ahead; or it is only a tile of the rows.
enum class Access { cached, prefetched, tiled };

WB_INLINE Access access_to(int64_t bytes, const int32_t* cursors) {
    if (cursors != nullptr) return Access::tiled;
    return bytes > kPrefetchBytes ? Access::prefetched : Access::cached;
}

// Where the row of a connection starts in a panel, in bytes. A panel without tiles is smaller than 4 GB, and a product of
// 32 bits loses the sign's bit by itself.
template <int PanelBytes, Access access>
WB_INLINE uintptr_t row_bytes(int32_t packed_rows) {
    static_assert(PanelBytes % 2 == 0, "the top bit must be shifted out");
    if constexpr (access == Access::tiled) return static_cast<uintptr_t>(row_of(packed_rows)) * PanelBytes;
    else return static_cast<uint32_t>(packed_rows) * uint32_t{PanelBytes};
}

// The first of a column's connections [k, end) that is in this row or below. Most columns are spread evenly over the
// rows, so the search starts where `share` of the connections would end.
template <class T>
WB_INLINE int64_t first_below(const Layer<T>& layer, int64_t k, int64_t end, int64_t row, double share) {
    int64_t at = k + static_cast<int64_t>(share * static_cast<double>(end - k));
    while (at > k && row_of(layer.packed_rows[at - 1]) >= row) --at;
    while (at < end && row_of(layer.packed_rows[at]) < row) ++at;
    return at;
}

// Rows that a kernel takes at a time, of those of the layer.
struct RowTile {
    int64_t first, end;
    bool far;  // larger than the caches

    // The share of the rows from `first` on, of n, that it holds.
    double share(int64_t n) const { return static_cast<double>(end - first) / static_cast<double>(n - first); }
};

// Cursors for find_runs whose first tile starts at this row.
template <class T>
static void start_cursors(const Layer<T>& layer, int64_t first_row, int32_t* cursors) {
    if (first_row == 0) {
        std::memset(cursors, 0, static_cast<size_t>(layer.n_in) * sizeof(int32_t));
        return;
    }
    const double share = static_cast<double>(first_row) / static_cast<double>(layer.n_out);
    for (int64_t c = 0; c < layer.n_in; ++c) {
        const int64_t begin = layer.begin(c);
        cursors[c] = static_cast<int32_t>(first_below(layer, begin, layer.begin(c + 1), first_row, share) - begin);
    }
}

// For a block of columns, the connections [begin[c], stop[c]) that lie in the current tile of rows.
struct TileRuns {
    int64_t begin[kBlockColumns], stop[kBlockColumns];
};

// Finds them. `cursors` holds how far each column has come: rows are sorted, so every tile continues where the one
// before it stopped. A far tile sees few connections of a column, and their rows are fetched now, for the whole block,
// before the first is needed.
template <class T, int PanelBytes>
WB_INLINE void find_runs(const Layer<T>& layer, int64_t first, int64_t columns, const RowTile& tile, int32_t* cursors,
                         uintptr_t panel, TileRuns& runs) {
    const double share = tile.share(layer.n_out);
    for (int64_t c = 0; c < columns; ++c) {
        const int64_t begin = layer.begin(first + c), end = layer.begin(first + c + 1);
        int64_t k = runs.begin[c] = begin + cursors[first + c];
        if (tile.far) {
            for (; k < end && row_of(layer.packed_rows[k]) < tile.end; ++k)
                prefetch<PanelBytes>(panel + static_cast<uintptr_t>(row_of(layer.packed_rows[k])) * PanelBytes);
        } else {
            k = first_below(layer, k, end, tile.end, share);
        }
        runs.stop[c] = k;
        cursors[first + c] = static_cast<int32_t>(k - begin);
    }
}

// Below this many multiply-adds a second thread costs more than it gives.
constexpr int64_t kParallelWork = 200000;

// The column of each connection of some columns, counted from the first. Whatever a column holds, eight are written
// at once: most have fewer, the next column overwrites what was too much, and no loop has an end to mispredict. So
// there must be room for eight more at the end.
[[maybe_unused]] static void write_columns(const int64_t* colptr, int64_t n_in, int32_t* columns) {
    for (int64_t c = 0; c < n_in; ++c) {
        const Ints8 column = static_cast<int32_t>(c) - Ints8{};
        int64_t k = colptr[c] - colptr[0];
        const int64_t end = colptr[c + 1] - colptr[0];
        do {
            store<int32_t, 32>(columns + k, column);
            k += 8;
        } while (k < end);
    }
}

}  // namespace wb::WB_ISA
