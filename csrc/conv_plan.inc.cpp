// The order in which a pass takes the connections: sorted into cells of (chunk of input channels, output channel).
//
// A pass sums an output channel in registers while the chunk of input channels it reads stays in the first cache. In a
// cell, connections of a row of the kernel follow each other, because they leave out the same rows of padding. The
// sort is a counting sort, O(K + cells), made anew in every call: the work it serves is hundreds of times larger.
#pragma once

#include "conv_tiling.inc.cpp"

namespace wb::WB_ISA {

template <class T>
struct ConvEntry {
    int32_t offset;  // of the first number that it reads, from the start of its group and chunk
    T weight;
};

template <class T>
struct ConvPlan {
    int64_t rows = 0, group_rows = 1;  // output channels of the pass, in all and in a group
    int64_t chunk = 1, chunks = 0;     // input channels of a chunk; chunks of a group
    int64_t chunk_stride = 0, group_stride = 0;  // numbers in the panel from one to the next
    int64_t* cells = nullptr;          // entries of cell i are [cells[i], cells[i + 1])
    ConvEntry<T>* entries = nullptr;
    uint8_t* heights = nullptr;        // of each entry: how far below its output it reads, as an index of row masks

    // Entries of an output channel in a chunk.
    WB_INLINE const int64_t* cell(int64_t chunk_index, int64_t row) const { return cells + chunk_index * rows + row; }
    // Where the panel of an output channel's group starts.
    WB_INLINE int64_t group_base(int64_t row) const {
        return group_rows == rows ? 0 : row / group_rows * group_stride;
    }
};

// Input channels of a chunk; `slab` bytes of each are read, and it takes `span` numbers of the panel.
static int64_t chunk_channels(int64_t channels, int64_t slab, int64_t span, int64_t rows, int64_t connections) {
    if (channels <= 1) return 1;
    int64_t chunk = std::max<int64_t>(1, kChunkBytes / std::max<int64_t>(1, slab));
    const int64_t per_row = std::max<int64_t>(1, connections / std::max<int64_t>(1, rows));
    chunk = std::min(channels, std::max(chunk, kCellConnections * channels / per_row));
    chunk = std::clamp<int64_t>(INT32_MAX / span, 1, chunk);  // offsets are 32 bits
    const int64_t chunks = (channels + chunk - 1) / chunk;
    return (channels + chunks - 1) / chunks;
}

// For all connections, kernel row by kernel row: column_of(channel, ky, kx) gives what takes (k, row). Forwards, or
// backwards with Reverse.
template <bool Reverse, class T, class Column>
WB_INLINE void each_connection(const ConvShape& shape, const Layer<T>& layer, Column&& column_of) {
    const int64_t height = shape.y.kernel, width = shape.x.kernel;
    const auto visit_column = [&](int64_t ky, int64_t channel, int64_t kx) __attribute__((always_inline)) {
        const int64_t column = (channel * height + ky) * width + kx;
        const int64_t begin = layer.begin(column), end = layer.begin(column + 1);
        if (begin == end) return;
        const auto visit = column_of(channel, ky, kx);
        if constexpr (Reverse) {
            for (int64_t k = end; k-- > begin;) visit(k, row_of(layer.packed_rows[k]));
        } else {
            for (int64_t k = begin; k < end; ++k) visit(k, row_of(layer.packed_rows[k]));
        }
    };
    const auto at = [](int64_t i, int64_t count) { return Reverse ? count - 1 - i : i; };
    for (int64_t ky = 0; ky < height; ++ky)
        for (int64_t channel = 0; channel < shape.group_in; ++channel)
            for (int64_t kx = 0; kx < width; ++kx)
                visit_column(at(ky, height), at(channel, shape.group_in), at(kx, width));
}

// Which way a plan goes: column(channel, ky, kx) gives what makes a cell and an offset of a row, shift(ky) how many
// rows below its output a connection reads.
template <class T>
struct Outward {  // from x to y
    const ConvShape& shape;
    const ConvPanel& panel;
    const ConvPlan<T>& plan;

    WB_INLINE auto column(int64_t channel, int64_t ky, int64_t kx) const {
        const int64_t phase = shape.y.phase(ky) * shape.x.phases + shape.x.phase(kx);
        const int64_t offset = (channel % plan.chunk * shape.phases() + phase) * panel.channel +
                               shape.y.shift(ky) * panel.row + shape.x.shift(kx) * shape.images;
        const int64_t first = channel / plan.chunk * plan.rows;
        return [=](int64_t row) { return std::pair<int64_t, int64_t>(first + row, offset); };
    }
    WB_INLINE int64_t shift(int64_t ky) const { return shape.y.shift(ky); }
};
template <class T>
struct Inward {  // from dy to dx
    const ConvShape& shape;
    const ConvPanel& panel;
    const ConvPlan<T>& plan;
    int64_t top, left;  // as in map_output
    std::vector<std::pair<int64_t, int64_t>> starts;  // of each row: what its number adds to cells and offsets

    Inward(const ConvShape& shape_, const ConvPanel& panel_, const ConvPlan<T>& plan_, int64_t top_, int64_t left_)
        : shape(shape_), panel(panel_), plan(plan_), top(top_), left(left_) {
        starts.reserve(static_cast<size_t>(shape.out_channels));
        for (int64_t group = 0; group < shape.groups; ++group) {
            for (int64_t row = 0; row < shape.group_out; ++row)
                starts.emplace_back(row / plan.chunk * plan.rows + group * plan.group_rows,
                                    row % plan.chunk * panel.channel);
        }
    }
    WB_INLINE auto column(int64_t channel, int64_t ky, int64_t kx) const {
        const int64_t cell = channel * shape.phases() + shape.y.phase(ky) * shape.x.phases + shape.x.phase(kx);
        const int64_t offset = (top + shape.y.first_place() - shape.y.shift(ky)) * panel.row +
                               (left + shape.x.first_place() - shape.x.shift(kx)) * shape.images;
        return [cell, offset, from = starts.data()](int64_t row) {
            return std::pair<int64_t, int64_t>(from[row].first + cell, from[row].second + offset);
        };
    }
    WB_INLINE int64_t shift(int64_t ky) const { return shape.y.last_shift() - shape.y.shift(ky); }
};

// Sorts the connections of a layer. `space` holds the cells, then the entries, then their heights.
template <class T>
static size_t plan_bytes(const ConvPlan<T>& plan, int64_t connections) {
    return static_cast<size_t>(plan.chunks * plan.rows + 2) * sizeof(int64_t) +
           static_cast<size_t>(connections) * sizeof(ConvEntry<T>) + static_cast<size_t>(round_up(connections, 8));
}
template <class T, class Way>
static void fill_plan(const ConvShape& shape, const Layer<T>& layer, const Way& way, ConvPlan<T>& plan, void* space) {
    const int64_t cells = plan.chunks * plan.rows;
    plan.cells = static_cast<int64_t*>(space);
    plan.entries = reinterpret_cast<ConvEntry<T>*>(plan.cells + cells + 2);
    plan.heights = reinterpret_cast<uint8_t*>(plan.entries + layer.connections());
    std::memset(plan.cells, 0, static_cast<size_t>(cells + 2) * sizeof(int64_t));
    each_connection<false>(shape, layer, [&](int64_t channel, int64_t ky, int64_t kx) {
        const auto place = way.column(channel, ky, kx);
        return [&, place](int64_t, int64_t row) { ++plan.cells[place(row).first + 2]; };
    });
    for (int64_t cell = 2; cell < cells + 2; ++cell) plan.cells[cell] += plan.cells[cell - 1];
    each_connection<false>(shape, layer, [&](int64_t channel, int64_t ky, int64_t kx) {
        const auto place = way.column(channel, ky, kx);
        const uint8_t height = static_cast<uint8_t>(RowMasks::height_of(way.shift(ky)));
        return [&, place, height](int64_t k, int64_t row) {
            const auto [cell, offset] = place(row);
            const int64_t entry = plan.cells[cell + 1]++;
            plan.entries[entry] = {static_cast<int32_t>(offset), with_sign(layer.theta[k], layer.packed_rows[k])};
            plan.heights[entry] = height;
        };
    });
}

// Takes sums in the order of a plan back to the connections; the plan's cells are used up.
template <class T, class Way>
static void scatter_sums(const ConvShape& shape, const Layer<T>& layer, const Way& way, ConvPlan<T>& plan,
                         const T* sums, T* dtheta) {
    each_connection<true>(shape, layer, [&](int64_t channel, int64_t ky, int64_t kx) {
        const auto place = way.column(channel, ky, kx);
        return [&, place](int64_t k, int64_t row) {
            dtheta[k] = with_sign(sums[--plan.cells[place(row).first + 1]], layer.packed_rows[k]);
        };
    });
}

}  // namespace wb::WB_ISA
