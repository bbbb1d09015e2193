// The tiles in which a pass computes lines: as many sums as stay in registers.
#pragma once

#include "conv_shape.inc.cpp"

namespace wb::WB_ISA {

// Vectors of sums in a tile; with a weight they fill sixteen registers, or thirty-two.
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileVectors = 24;
#else
constexpr int kTileVectors = 12;
#endif
constexpr int kTileSide = 12;  // the most rows, and the most vectors of a line

// Tiles that there is code for: R rows by V vectors.
constexpr bool has_tile(int R, int V) {
    return R * V <= kTileVectors && (R <= 4 || R == 6 || R == kTileSide) && (V <= 8 || V == 10 || V == kTileSide);
}

// Bytes of a panel's part that one pass over a chunk of input channels reads: they should stay in a first cache of
// 32 KB.
constexpr int64_t kChunkBytes = 26 << 10;
// Connections that a cell should have on average, so that loading and storing its sums does not weigh.
constexpr int64_t kCellConnections = 8;

// What a pass computes: for each of its output channels `rows` lines of `length` numbers.
struct Pass {
    int64_t rows, length;
    int64_t channels;            // input channels of a group
    int64_t phases;              // of an input channel
    int64_t more_rows, more;     // rows and numbers of a line that are read beyond those of a tile
    int64_t data, end_data;      // rows [data, end_data) of what is read are not padding
    int64_t connections;         // of an output channel
};

// A line has `parts` tiles; `bands` tiles of rows cover the rows. Lines and rows are rounded up.
struct Tiling {
    int V = 1, R = 1;
    int64_t parts = 1, bands = 0, rows = 0, length = 0;
    int64_t line = 0;  // numbers in the tiles of a line
    int64_t slab = 1;  // bytes of an input channel that a tile reads
    int64_t data = 0, end_data = 0;  // as in the pass

    int64_t padded_rows() const { return bands * R; }
    int64_t tiles() const { return parts * bands; }
};

// The most rows that a band of R rows reads, without padding.
[[maybe_unused]] static int64_t read_rows(const Pass& pass, int R) {
    int64_t most = 0;
    for (int64_t row = 0; row < pass.rows; row += R)
        most = std::max(most, std::min(row + R + pass.more_rows, pass.end_data) - std::max(row, pass.data));
    return most;
}

// The tiling that takes the fewest cycles: a connection costs a vector each and two for itself; a cell of connections
// loads and stores its sums, and its end is mispredicted. Small slabs make large cells.
template <class T>
static Tiling make_tiling(const Pass& pass) {
    constexpr int64_t lanes = kVectorBytes / sizeof(T);
    const int64_t vectors = std::max<int64_t>(1, (pass.length + lanes - 1) / lanes);
    Tiling best;
    double least = std::numeric_limits<double>::infinity();
    for (int V = 1; V <= kTileSide; ++V) {
        for (int R = 1; R <= kTileSide; ++R) {
            if (!has_tile(R, V)) continue;
            const int64_t parts = (vectors + V - 1) / V, bands = (pass.rows + R - 1) / R;
            const int64_t read = std::min(R + pass.more_rows, std::max<int64_t>(1, read_rows(pass, R)));
            const int64_t slab =
                std::max<int64_t>(1, pass.phases * read * (V * lanes + pass.more) * int64_t{sizeof(T)});
            const double chunk = std::clamp<double>(double(kChunkBytes) / double(slab), 1, double(pass.channels));
            const double cell = std::max(1.0, double(pass.connections) * chunk / double(pass.channels));
            const double cost = double(parts * bands) * (R * V + 2 + (2 * R * V + 20) / cell);
            if (cost >= least) continue;
            least = cost;
            best.V = V, best.R = R, best.parts = parts, best.bands = bands, best.slab = slab;
        }
    }
    best.rows = pass.rows;
    best.length = pass.length;
    best.data = pass.data, best.end_data = pass.end_data;
    best.line = best.parts * best.V * lanes;
    return best;
}

// For each band, and for each number of rows ("height") that a connection reads below its output: the rows of the band
// where it reads no padding. With a kernel of 5 x 5 on 12 x 12 pixels that is a tenth less to do.
struct RowMasks {
    int64_t heights = 1;
    std::vector<uint16_t> masks;
    std::vector<char> partial;  // of each band: whether a mask leaves out rows

    RowMasks(const Tiling& tiling, int64_t last_shift)
        : heights(height_of(last_shift) + 1), masks(static_cast<size_t>(tiling.bands * heights)),
          partial(static_cast<size_t>(tiling.bands)) {
        const int all = (1 << tiling.R) - 1;
        for (int64_t i = 0; i < tiling.bands * heights; ++i) {
            const int64_t band = i / heights, height = i % heights;
            int mask = 0;
            for (int r = 0; r < tiling.R; ++r) {
                const int64_t row = band * tiling.R + r, read = row + height;
                mask |= (row < tiling.rows && read >= tiling.data && read < tiling.end_data) << r;
            }
            if (last_shift > kMostHeight) mask = all;
            masks[static_cast<size_t>(i)] = static_cast<uint16_t>(mask);
            partial[static_cast<size_t>(band)] |= mask != all;
        }
    }
    // The masks of a band, or nullptr if all rows always count.
    const uint16_t* band(int64_t index) const {
        return partial[static_cast<size_t>(index)] ? masks.data() + index * heights : nullptr;
    }

    static constexpr int64_t kMostHeight = 255;  // heights are bytes; taller kernels read padding, too
    static int64_t height_of(int64_t shift) { return shift > kMostHeight ? 0 : shift; }
};

}  // namespace wb::WB_ISA
