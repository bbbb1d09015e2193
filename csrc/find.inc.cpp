// Between positions, counted down the columns of all layers, and places in the arrays of a wiring. Lists may have any
// order; where they rise, which they mostly do, no layer is looked for twice.
#pragma once

#include "isa.h"

namespace wb::WB_ISA {

// Layer by layer through a wiring: the layer that holds a position or a column, from where the last one was.
struct LayerWalk {
    int64_t layers;
    const int64_t *n_in, *n_out;
    int64_t layer = 0, column = 0, position = 0;  // of the layer, its first column and its first position

    // False where no layer holds it.
    bool to_position(int64_t wanted) {
        if (wanted < position) back();
        while (layer < layers && wanted - position >= n_in[layer] * n_out[layer]) next();
        return wanted >= 0 && layer < layers;
    }
    bool to_column(int64_t wanted) {
        if (wanted < column) back();
        while (layer < layers && wanted - column >= n_in[layer]) next();
        return wanted >= 0 && layer < layers;
    }

private:
    void back() { layer = column = position = 0; }
    void next() {
        column += n_in[layer];
        position += n_in[layer] * n_out[layer];
        ++layer;
    }
};

static void entry_find(int64_t layers, const int64_t* n_in, const int64_t* n_out, const int64_t* colptr,
                       const int32_t* packed_rows, const int64_t* positions, int64_t count, int64_t* out) {
    LayerWalk walk{layers, n_in, n_out};
    for (int64_t i = 0; i < count; ++i) {
        out[i] = -1;
        if (!walk.to_position(positions[i])) continue;
        const int64_t local = positions[i] - walk.position, height = n_out[walk.layer];
        const int64_t column = walk.column + local / height;
        const int32_t row = static_cast<int32_t>(local % height);
        const int32_t *end = packed_rows + colptr[column + 1],
                      *found = std::lower_bound(packed_rows + colptr[column], end, row, [](int32_t packed, int32_t wanted) {
                          return (packed & INT32_MAX) < wanted;
                      });
        if (found != end && (*found & INT32_MAX) == row) out[i] = found - packed_rows;
    }
}

static void entry_positions_at(int64_t layers, const int64_t* n_in, const int64_t* n_out, const int64_t* colptr,
                               const int32_t* packed_rows, const int64_t* places, int64_t count, int64_t* out) {
    int64_t columns = 0;
    for (int64_t i = 0; i < layers; ++i) columns += n_in[i];
    LayerWalk walk{layers, n_in, n_out};
    int64_t column = 0;
    for (int64_t i = 0; i < count; ++i) {
        out[i] = -1;
        if (places[i] < 0 || places[i] >= colptr[columns]) continue;
        // The last column that begins at or before it, in leaps from where the last one was; columns without connections
        // begin where the next one does.
        if (places[i] < colptr[column]) column = 0;
        int64_t leap = 1;
        for (; column + leap <= columns && colptr[column + leap] <= places[i]; leap *= 2) column += leap;
        const int64_t* end = colptr + std::min(column + leap, columns);
        column = std::upper_bound(colptr + column + 1, end, places[i]) - colptr - 1;
        if (!walk.to_column(column)) continue;
        out[i] = walk.position + (column - walk.column) * n_out[walk.layer] + (packed_rows[places[i]] & INT32_MAX);
    }
}

}  // namespace wb::WB_ISA
