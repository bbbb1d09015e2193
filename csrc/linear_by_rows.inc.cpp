// y = x W^T + bias by rows (linear_plan.inc.cpp says when). The connections of a tile of columns are sorted by row; then
// every row of y gathers its inputs from the tile's panel of x, with its sums in registers. A thread owns ranges of rows.
#pragma once

#include "linear_plan.inc.cpp"

namespace wb::WB_ISA {

// A connection in row order: where its column starts in a panel of x of the widest kind, in bytes, and its weight.
template <class T>
struct Sorted {
    std::make_unsigned_t<Bits<T>> offset;
    T weight;
};

// As one number of 64 bits, because two stores would cost more than putting it together.
WB_INLINE void put_sorted(Sorted<float>& to, uint64_t offset, float theta, int32_t packed_row) {
    static_assert(sizeof to == 8 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the offset comes first");
    uint32_t bits;
    std::memcpy(&bits, &theta, sizeof bits);
    const uint64_t both = offset | uint64_t{bits ^ (static_cast<uint32_t>(packed_row) & 0x80000000u)} << 32;
    std::memcpy(static_cast<void*>(&to), &both, sizeof both);
}
WB_INLINE void put_sorted(Sorted<double>& to, uint64_t offset, double theta, int32_t packed_row) {
    to = {offset, with_sign(theta, packed_row)};
}

// Some connections, [begin, end), of each column of a tile.
struct ColumnRun {
    int64_t begin, end;
};

// Sorts the runs of a tile's columns by row. The connections of row first_row + i end at ends[i] of `sorted`, those of
// the next row start there. Within a row they stay in the order of columns.
template <class T>
static void sort_by_row(const Layer<T>& layer, const ColumnRun* runs, int64_t columns, int64_t first_row,
                        int64_t rows, int32_t* __restrict ends, Sorted<T>* __restrict sorted) {
    const int32_t* __restrict packed_rows = layer.packed_rows;
    const T* __restrict theta = layer.theta;
    std::memset(ends, 0, static_cast<size_t>(rows) * sizeof(int32_t));
    for (int64_t c = 0; c < columns; ++c)
        for (int64_t k = runs[c].begin, end = runs[c].end; k < end; ++k) ++ends[row_of(packed_rows[k]) - first_row];
    int32_t sum = 0;
    for (int64_t row = 0; row < rows; ++row) {
        const int32_t count = ends[row];
        ends[row] = sum;
        sum += count;
    }
    for (int64_t c = 0; c < columns; ++c) {
        const uint64_t offset = static_cast<uint64_t>(c * kWidestByRows);
        for (int64_t k = runs[c].begin, end = runs[c].end; k < end; ++k) {
            int32_t& place = ends[row_of(packed_rows[k]) - first_row];
            put_sorted(sorted[place++], offset, theta[k], packed_rows[k]);
        }
    }
}

// Adds what a tile of columns gives to the sums of some rows; the first tile starts them, at the bias.
template <class T, int PanelBytes>
static void add_tile(const Sorted<T>* sorted, const int32_t* ends, int64_t rows, const T* x, T* sums, bool start,
                     const T* bias) {
    constexpr int Bytes = PanelBytes < kVectorBytes ? PanelBytes : kVectorBytes;
    constexpr int vectors = PanelBytes / Bytes;
    constexpr int lanes = Bytes / sizeof(T);
    // Eight sums hide the latency of an addition; a narrow panel gets them by taking several connections at a time.
    constexpr int chains = vectors >= 8 ? 1 : vectors >= 4 ? 2 : 4;
    using V = Vec<T, Bytes>;
    const char* panel = reinterpret_cast<const char*>(x);
    int64_t k = 0;
    for (int64_t row = 0; row < rows; ++row, sums += PanelBytes / sizeof(T)) {
        V sum[chains][vectors] = {};
        const V first = splat<T, Bytes>(start && bias != nullptr ? bias[row] : T(0));
        for (int i = 0; i < vectors; ++i) sum[0][i] = start ? first : load<T, Bytes>(sums + i * lanes);
        const auto add = [&](int64_t at, V* to) __attribute__((always_inline)) {
            const T* in = reinterpret_cast<const T*>(panel + sorted[at].offset / (kWidestByRows / PanelBytes));
            const V weight = splat<T, Bytes>(sorted[at].weight);
            for (int i = 0; i < vectors; ++i) to[i] += weight * load<T, Bytes>(in + i * lanes);
        };
        const int64_t end = ends[row];
        for (; k + chains <= end; k += chains)
            for (int chain = 0; chain < chains; ++chain) add(k + chain, sum[chain]);
        for (; k < end; ++k) add(k, sum[0]);
        for (int i = 0; i < vectors; ++i) {
            V total = sum[0][i];
            for (int chain = 1; chain < chains; ++chain) total += sum[chain][i];
            store<T, Bytes>(sums + i * lanes, total);
        }
    }
}

template <class T>
struct RowsJob {
    Layer<T> layer;
    const T* x;
    int64_t x_stride;
    T* y;
    int64_t y_stride;
    const T* bias;
    int64_t tile_columns;
};

// Calls function(first sample, samples, std::integral_constant<int, PanelBytes>) for each panel of a group.
template <class T, class Function>
WB_INLINE void each_panel_by_rows(int64_t first, int64_t end, Function&& function) {
    constexpr int64_t width = kWidestByRows / sizeof(T);
    for (; first < end; first += width) {
        const int64_t samples = std::min(width, end - first);
        const auto run = [&](auto bytes) { function(first, samples, bytes); };
        if constexpr (kWidestByRows == 256) with_width<T, 32, 64, 128, 256>(samples, run);
        else with_width<T, 32, 64, 128>(samples, run);
    }
}

// The rows [first_row, end_row) of y for the samples [first, end).
template <class T>
static void rows_of_y(const RowsJob<T>& job, int64_t first, int64_t end, int64_t first_row, int64_t end_row) {
    const Layer<T>& layer = job.layer;
    const int64_t rows = end_row - first_row, width = kWidestByRows / sizeof(T);
    const int64_t tile = std::min(job.tile_columns, round_up(layer.n_in, kPanelRound));
    int64_t most = 0;
    for (int64_t c = 0; c < layer.n_in; c += tile)
        most = std::max(most, layer.begin(std::min(c + tile, layer.n_in)) - layer.begin(c));
    auto* const sorted = static_cast<Sorted<T>*>(scratch(Scratch::connections, static_cast<size_t>(most) * sizeof(Sorted<T>)));
    const size_t runs_bytes = static_cast<size_t>(tile) * sizeof(ColumnRun);
    char* const space = static_cast<char*>(scratch(Scratch::cursors, runs_bytes + static_cast<size_t>(rows) * sizeof(int32_t)));
    auto* const runs = reinterpret_cast<ColumnRun*>(space);
    auto* const ends = reinterpret_cast<int32_t*>(space + runs_bytes);
    const int64_t panels = (end - first + width - 1) / width, sums_each = round_up(rows, kPanelRound) * width;
    T* const sums = static_cast<T*>(
        scratch(Scratch::panel, static_cast<size_t>(panels * sums_each) * sizeof(T) + static_cast<size_t>(tile) * kWidestByRows));
    T* const x_tile = sums + panels * sums_each;
    const double before = static_cast<double>(first_row) / static_cast<double>(layer.n_out);
    const double share = RowTile{first_row, end_row, false}.share(layer.n_out);
    for (int64_t column = 0; column < layer.n_in; column += tile) {
        const int64_t columns = std::min(tile, layer.n_in - column);
        for (int64_t c = 0; c < columns; ++c) {
            ColumnRun run{layer.begin(column + c), layer.begin(column + c + 1)};
            if (first_row > 0) run.begin = first_below(layer, run.begin, run.end, first_row, before);
            if (end_row < layer.n_out) run.end = first_below(layer, run.begin, run.end, end_row, share);
            runs[c] = run;
        }
        sort_by_row(layer, runs, columns, first_row, rows, ends, sorted);
        each_panel_by_rows<T>(first, end, [&](int64_t sample, int64_t samples, auto bytes) {
            constexpr int PanelBytes = decltype(bytes)::value;
            pack<T, PanelBytes>(job.x + sample * job.x_stride + column, job.x_stride, samples, columns, x_tile);
            add_tile<T, PanelBytes>(sorted, ends, rows, x_tile, sums + (sample - first) / width * sums_each, column == 0,
                                    job.bias != nullptr ? job.bias + first_row : nullptr);
        });
    }
    each_panel_by_rows<T>(first, end, [&](int64_t sample, int64_t samples, auto bytes) {
        unpack<T, decltype(bytes)::value>(sums + (sample - first) / width * sums_each, samples, rows,
                                          job.y + sample * job.y_stride + first_row, job.y_stride);
    });
}

// All of y. Each group of samples is cut into ranges of rows if there are fewer groups than threads.
template <class T>
static void forward_by_rows(const RowsJob<T>& job, int64_t batch, int64_t group, int threads) {
    const int64_t groups = (batch + group - 1) / group, n_out = job.layer.n_out;
    const int64_t parts = std::min((threads + groups - 1) / groups, (n_out + kPanelRound - 1) / kPanelRound);
    const int64_t part_rows = round_up((n_out + parts - 1) / parts, kPanelRound);
    parallel_for(threads, groups * parts, [&](int64_t chunk) {
        const int64_t first = chunk / parts * group, first_row = chunk % parts * part_rows;
        if (first_row >= n_out) return;
        rows_of_y(job, first, std::min(first + group, batch), first_row, std::min(first_row + part_rows, n_out));
    });
}

}  // namespace wb::WB_ISA
