// Which linear kernel does a layer's work, and in which pieces. All the rules are here, and all their reasons.
//
// Forward, y = x W^T, can be done in two ways:
//
//   by columns   The wiring is sorted by columns, so this needs nothing first. Each connection loads, changes and
//                stores a row of y; the stores limit it.
//   by rows      The connections of some columns are sorted by row first, by counting: two passes over them. After that
//                a row of y stays in registers while its connections are added up: no stores, and fused multiply-adds.
//
// Measured in programs of these loops alone, in nanoseconds a connection, 1024 x 1024, 1 % to 20 % (AVX-512 and AVX2 of
// a Zen 4 core at 3.7 GHz):
//
//                                          AVX-512        AVX2
//   by columns, each 32 samples            1.6 to 1.8     1.7 to 2.0
//   by rows, each 32 samples               0.8 to 1.1     0.9 to 1.2
//   sorting, once for the whole batch      1.5            1.5
//   backward, each 32 samples,
//     panels of 32 / 64 / 128 samples      1.8 / 1.4 / 1.3   1.8 / 1.7 / -
//
// Rows of y are also loaded and stored for every tile of columns, so sorting pays from about 96 samples on, and if at
// least one place in fifty is connected: thinner layers need tiles of x that leave the first cache. Backward needs no
// sorting: it reads rows of dy, and a column's dx stays in registers. There, wide panels pay: index, weight and the sum
// across lanes are per connection, not per sample.
//
// Tried and given up on that core: tiles of rows that keep the panel of y or dy in the first cache (finding a column's
// part of each costs as much as it gives), and prefetching the rows that are transposed next.
//
// Nothing here depends on the number of threads: kernels and widths differ in how they round.
#pragma once

#include "layer.inc.cpp"
#include "transpose.inc.cpp"

namespace wb::WB_ISA {

// Bytes of a panel's feature. By rows, eight accumulators hide the latency of additions and leave registers for the
// rest; with AVX-512, four of 64 bytes and two connections at a time do the same. Backward holds a column of x and
// one of dx: sixteen vectors, of which AVX2 takes those of x from the first cache.
constexpr int kWidestByRows = kVectorBytes == 16 ? 128 : 256;
constexpr int kWidestBackward = 8 * kVectorBytes;

// What a panel may take of the second cache: half of it or less. Processors with AVX-512 have a megabyte or more,
// others often half of that.
constexpr int64_t kSecondCache = kVectorBytes == 64 ? int64_t{512} << 10 : int64_t{256} << 10;

// By rows: x of this many columns stays in the first cache. A row should find some connections among them, because its
// sums are loaded and stored again for every such tile; if the layer is thin, tiles are larger.
constexpr int64_t kFirstCache = kVectorBytes == 64 ? int64_t{32} << 10 : int64_t{24} << 10;
constexpr int64_t kRowRun = 10;

// Batches of this many floats (or half as many doubles) and more are worth the sorting.
constexpr int64_t kSortedBatch = 96;

struct ByRows {
    bool chosen;
    int64_t tile_columns;  // columns that are sorted together
    int64_t group;         // samples for which they are sorted once
};

template <class T>
static ByRows plan_by_rows(int64_t n_in, int64_t n_out, int64_t connections, int64_t batch) {
    constexpr int64_t size = sizeof(T);
    // Positions are counted in 32 bits.
    if (batch * size < kSortedBatch * 4 || n_in <= 0 || n_out <= 0 || connections > INT32_MAX) return {false, 0, 0};
    if (static_cast<double>(connections) * 50 < static_cast<double>(n_in) * static_cast<double>(n_out)) return {false, 0, 0};
    const int64_t width = std::min<int64_t>(kWidestByRows, batch * size);
    const double a_row = static_cast<double>(connections) / static_cast<double>(n_out);
    const int64_t wanted = std::max(kFirstCache / width, static_cast<int64_t>(kRowRun * static_cast<double>(n_in) / a_row));
    const int64_t columns = std::clamp<int64_t>(wanted, 16, std::max<int64_t>(16, kSecondCache / 2 / width));
    // Sums of y for a group of samples lie in the second cache, unless sorting would then not pay.
    const int64_t group = std::clamp<int64_t>(kSecondCache / (n_out * size), 512 / size, 2048 / size);
    return {true, round_up(std::min(columns, n_in), 16), group * size / kWidestByRows * kWidestByRows / size};
}

// Samples a panel, for the kernel by columns. A layer whose panel is cut into tiles because it is too large makes the
// rest of the batch's data pass by several times, and narrow panels make it fewer.
template <class T>
static int64_t width_by_columns(int64_t n_out) {
    return (n_out * kPanelBytes > kTileBytes ? 32 : kPanelBytes) / static_cast<int64_t>(sizeof(T));
}

// Ranges of rows that threads share each of some panels in: as few as keep all threads about equally busy, because each
// transposes x again and looks for its rows in every column.
[[maybe_unused]] static int64_t row_parts(int64_t panels, int threads) {
    int64_t best = 1;
    double best_cost = std::numeric_limits<double>::infinity();
    for (int64_t parts = 1; parts <= threads; ++parts) {
        const int64_t rounds = (panels * parts + threads - 1) / threads;
        const double cost = static_cast<double>(rounds) * (1 / static_cast<double>(parts) + 0.1);
        if (cost < best_cost) best_cost = cost, best = parts;
    }
    return best;
}

struct BackwardPlan {
    int64_t width;      // samples a panel
    int64_t tile_rows;  // rows of dy at a time
};

template <class T>
static BackwardPlan plan_backward(int64_t n_out, int64_t batch) {
    constexpr int64_t size = sizeof(T);
    const int64_t rows = round_up(std::max<int64_t>(n_out, 1), kPanelRound);
    // Tiles of the whole make the rest of the batch's data pass by several times, and narrow panels make it fewer.
    if (rows * kPanelBytes > kTileBytes) return {32 / size, kTileBytes / 32};
    int64_t bytes = kPanelBytes;
    while (bytes < kWidestBackward && bytes * 3 / 2 <= batch * size && rows * bytes * 2 <= kSecondCache) bytes *= 2;
    return {bytes / size, rows};
}

}  // namespace wb::WB_ISA
