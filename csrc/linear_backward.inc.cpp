// dx = dy W and the gradient of every connection, in one pass over the columns. dy is transposed into a panel that
// all threads read; a thread owns ranges of columns, and with them their dx and their connections.
#pragma once

#include "guard.inc.cpp"
#include "lane_sums.inc.cpp"
#include "layer.inc.cpp"
#include "linear_plan.inc.cpp"
#include "transpose.inc.cpp"

namespace wb::WB_ISA {

// For the connections [begin, end) of one column: dx = sum of weight * dy, and dtheta[k] = sign * sum of x * dy,
// started or added to. `panel` is an address, as in scatter_column.
template <class T, int PanelBytes, bool Dx, bool Dtheta, Access access>
WB_INLINE void gather_column(const Layer<T>& layer, int64_t begin, int64_t end, int64_t last, const T* x, T* dx,
                             T* dtheta, bool start, uintptr_t panel) {
    constexpr int Bytes = PanelBytes < kVectorBytes ? PanelBytes : kVectorBytes;
    constexpr int vectors = PanelBytes / Bytes;
    constexpr int lanes = Bytes / sizeof(T);
    // A narrow panel has few chains of additions; connections in turn get their own, which keeps the adders busy.
    constexpr int chains = vectors >= 4 ? 1 : 4 / vectors;
    using V = Vec<T, Bytes>;
    const int32_t* packed_rows = layer.packed_rows;
    const auto row_address = [&](int64_t k) __attribute__((always_inline)) {
        return panel + row_bytes<PanelBytes, access>(packed_rows[k]);
    };
    V in[vectors], out[chains][vectors];
    for (int i = 0; i < vectors; ++i) {
        if constexpr (Dtheta) in[i] = load<T, Bytes>(x + i * lanes);
        for (int chain = 0; chain < chains; ++chain) out[chain][i] = V{};
    }
    // Vector i of dy, from the row of connection k, into the sums of its column and of the connection.
    const auto add = [&](T weight, const T* dy, int i, bool first, V* to, V& product) __attribute__((always_inline)) {
        V value = load<T, Bytes>(dy + i * lanes);
        keep(value);
        if constexpr (Dx) to[i] += splat<T, Bytes>(weight) * value, keep(to[i]);
        if constexpr (Dtheta) product = first ? in[i] * value : product + in[i] * value, keep(product);
    };
    const auto fetch = [&](int64_t k) __attribute__((always_inline)) {
        if constexpr (access == Access::prefetched)
            prefetch<PanelBytes>(row_address(std::min(k + kPrefetchAhead, last)));
        return reinterpret_cast<const T*>(row_address(k));
    };
    const auto connection = [&](int64_t k, V* to) __attribute__((always_inline)) {
        const T* dy = fetch(k);
        const T weight = with_sign(layer.theta[k], packed_rows[k]);
        V product = {};
        for (int i = 0; i < vectors; ++i) add(weight, dy, i, i == 0, to, product);
        return product;
    };
    V products[4];
    int64_t k = begin;
    for (; k + 4 <= end; k += 4) {
        if constexpr (chains == 1) {
            // Some connections in turns, a part of a row apart: an addition then seldom waits for the one before it.
            constexpr int together = vectors >= 8 ? 4 : 2, apart = vectors >= 8 ? 1 : vectors / 2;
            const auto in_turns = [&](int64_t at, V* product) __attribute__((always_inline)) {
                const T* dy[together];
                T weight[together];
                for (int one = 0; one < together; ++one) {
                    dy[one] = fetch(at + one);
                    weight[one] = with_sign(layer.theta[at + one], packed_rows[at + one]);
                }
#pragma GCC unroll 32
                for (int turn = 0; turn < together * vectors; ++turn) {
                    const int one = turn % together, i = (turn / together + one * apart) % vectors;
                    add(weight[one], dy[one], i, turn < together, out[0], product[one]);
                }
            };
            in_turns(k, products);
            if constexpr (together == 2) in_turns(k + 2, products + 2);
        } else {  // without a loop: GCC would keep the sums in memory
            products[0] = connection(k, out[0]);
            products[1] = connection(k + 1, out[1 % chains]);
            products[2] = connection(k + 2, out[2 % chains]);
            products[3] = connection(k + 3, out[3 % chains]);
        }
        if constexpr (Dtheta) {
            Four<T> sums = with_signs<T, sizeof(Four<T>)>(sum_lanes<T, Bytes>(products), load<int32_t, 16>(packed_rows + k));
            if (!start) sums += load<T, sizeof(Four<T>)>(dtheta + k);
            store<T, sizeof(Four<T>)>(dtheta + k, sums);
        }
    }
    if (k < end) {
        const int rest = static_cast<int>(end - k);
        products[1] = products[2] = V{};
        products[0] = connection(k, out[0]);
        if (rest > 1) products[1] = connection(k + 1, out[1 % chains]);
        if (rest > 2) products[2] = connection(k + 2, out[2 % chains]);
        products[3] = V{};
        if constexpr (Dtheta) {
            const Four<T> sums = sum_lanes<T, Bytes>(products);
            for (int i = 0; i < rest; ++i) {
                const T value = with_sign(sums[i], packed_rows[k + i]);
                dtheta[k + i] = start ? value : dtheta[k + i] + value;
            }
        }
    }
    if constexpr (Dx) {
        for (int i = 0; i < vectors; ++i) {
            V sum = out[0][i];
            for (int chain = 1; chain < chains; ++chain) sum += out[chain][i];
            store<T, Bytes>(dx + i * lanes, sum);
        }
    }
}

// The part of the backward pass that one panel of dy allows.
template <class T>
struct Unit {
    int64_t first_sample, samples;  // which samples
    RowTile rows;                   // which rows: all of them, unless the layer is too large for one panel
    T* panel;                       // dy of those, transposed
};

template <class T>
struct Backward {
    Layer<T> layer;
    const T* x;
    int64_t x_stride;
    const T* dy;
    int64_t dy_stride;
    T* dx;
    int64_t dx_stride;
    T* dtheta;
    int32_t* cursors;  // as in find_runs
};

// Columns of x and dx at a time: they stay in the first cache.
template <int PanelBytes>
constexpr int64_t kColumnsOf = PanelBytes > 256 ? kBlockColumns / 2 : kBlockColumns;

// dx and dtheta of the columns [first_column, end_column), as far as this unit of dy goes.
template <class T, int PanelBytes, bool Dx, bool Dtheta, Access access>
static void backward_columns(const Backward<T>& job, const Unit<T>& unit, int64_t first_column, int64_t end_column) {
    constexpr int W = PanelBytes / sizeof(T);
    alignas(64) T x_block[kColumnsOf<PanelBytes> * W];
    alignas(64) T dx_block[kColumnsOf<PanelBytes> * W];
    TileRuns runs;
    const Layer<T> layer = job.layer;  // a copy: stores into the blocks could otherwise change the original
    const int64_t last = layer.connections() - 1;
    const T* x = job.x + unit.first_sample * job.x_stride;
    T* dx = Dx ? job.dx + unit.first_sample * job.dx_stride : nullptr;
    T* const dtheta = job.dtheta;
    const bool start = unit.first_sample == 0;
    const uintptr_t panel =
        reinterpret_cast<uintptr_t>(unit.panel) - static_cast<uintptr_t>(unit.rows.first) * PanelBytes;
    for (int64_t first = first_column; first < end_column; first += kColumnsOf<PanelBytes>) {
        const int64_t columns = std::min(kColumnsOf<PanelBytes>, end_column - first);
        if constexpr (access == Access::tiled)
            find_runs<T, PanelBytes>(layer, first, columns, unit.rows, job.cursors, panel, runs);
        if (Dtheta && layer.begin(first) != layer.begin(first + columns))
            pack<T, PanelBytes>(x + first, job.x_stride, unit.samples, columns, x_block);
        for (int64_t c = 0; c < columns; ++c) {
            const int64_t begin = access == Access::tiled ? runs.begin[c] : layer.begin(first + c);
            const int64_t stop = access == Access::tiled ? runs.stop[c] : layer.begin(first + c + 1);
            gather_column<T, PanelBytes, Dx, Dtheta, access>(layer, begin, stop, last, x_block + c * W,
                                                             dx_block + c * W, dtheta, start, panel);
        }
        if constexpr (Dx) {
            const auto put = unit.rows.first > 0 ? unpack<T, PanelBytes, true> : unpack<T, PanelBytes, false>;
            put(dx_block, unit.samples, columns, dx + first, job.dx_stride);
        }
    }
}

// Picks the variant: which gradients are wanted, and whether the panel outgrows the cache.
template <class T, int PanelBytes>
static void backward_columns_any(const Backward<T>& job, const Unit<T>& unit, int64_t first, int64_t end) {
    const Access access = access_to((unit.rows.end - unit.rows.first) * PanelBytes, job.cursors);
    const auto pick = [&](auto dx, auto dtheta) {
        constexpr bool Dx = decltype(dx)::value, Dtheta = decltype(dtheta)::value;
        switch (access) {
            case Access::cached:
                return backward_columns<T, PanelBytes, Dx, Dtheta, Access::cached>(job, unit, first, end);
            case Access::prefetched:
                return backward_columns<T, PanelBytes, Dx, Dtheta, Access::prefetched>(job, unit, first, end);
            case Access::tiled:
                return backward_columns<T, PanelBytes, Dx, Dtheta, Access::tiled>(job, unit, first, end);
        }
    };
    if (job.dx != nullptr && job.dtheta != nullptr) pick(std::true_type{}, std::true_type{});
    else if (job.dx != nullptr) pick(std::true_type{}, std::false_type{});
    else pick(std::false_type{}, std::true_type{});
}

// One sample needs no panel.
template <class T>
static void backward_single(const Backward<T>& job) {
    const Layer<T>& layer = job.layer;
    int64_t k = 0;
    for (int64_t column = 0; column < layer.n_in; ++column) {
        const T value = job.x[column];
        T sum = 0;
        for (const int64_t end = layer.begin(column + 1); k < end; ++k) {
            const int32_t packed_rows = layer.packed_rows[k];
            const T dy = job.dy[row_of(packed_rows)];
            sum += with_sign(layer.theta[k], packed_rows) * dy;
            if (job.dtheta != nullptr) job.dtheta[k] = with_sign(value * dy, packed_rows);
        }
        if (job.dx != nullptr) job.dx[column] = sum;
    }
}

// Cuts the columns into ranges of about equal work: first[i]..first[i + 1]. A column costs about as much as a few
// connections, because it is transposed.
template <class T>
static void cut_columns(const Layer<T>& layer, int64_t ranges, int64_t* first) {
    constexpr int64_t column_cost = 4;
    const int64_t total = layer.connections() + column_cost * layer.n_in;
    first[0] = 0;
    for (int64_t range = 1; range < ranges; ++range) {
        const int64_t goal = total / ranges * range;
        int64_t low = first[range - 1], high = layer.n_in;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (layer.begin(middle) + column_cost * middle < goal) low = middle + 1;
            else high = middle;
        }
        first[range] = std::min(layer.n_in, round_up(low, kPanelRound));
    }
    first[ranges] = layer.n_in;
}

template <class T, class Function>
WB_INLINE void with_backward_bytes(int64_t samples, Function&& function) {
    if constexpr (kWidestBackward == 512) with_width<T, 32, 64, 128, 256, 512>(samples, function);
    else if constexpr (kWidestBackward == 256) with_width<T, 32, 64, 128, 256>(samples, function);
    else with_width<T, 32, 64, 128>(samples, function);
}

template <class T>
static void linear_backward(const T* x, int64_t x_stride, const T* dy, int64_t dy_stride, T* dx, int64_t dx_stride,
                            T* dtheta, int64_t batch, int64_t n_in, int64_t n_out, const int64_t* colptr,
                            const int32_t* packed_rows, const T* theta, int threads) {
    Backward<T> job{{n_in, n_out, colptr, packed_rows, theta}, x, x_stride, dy, dy_stride, dx, dx_stride, dtheta, nullptr};
    const int64_t connections = job.layer.connections();
    if (batch <= 0 && dtheta != nullptr) std::fill(dtheta, dtheta + connections, T(0));
    if (batch <= 0 || n_in <= 0 || (dx == nullptr && dtheta == nullptr)) return;
    if (batch == 1) return backward_single(job);
    if ((connections + n_in + n_out) * batch < kParallelWork) threads = 1;

    // The batch is cut into panels, and panels into tiles of rows if they are too large; neither depends on threads.
    const BackwardPlan plan = plan_backward<T>(n_out, batch);
    const int64_t width = plan.width, tile_rows = plan.tile_rows;
    const int64_t row_bytes = width * static_cast<int64_t>(sizeof(T));
    const int64_t panels = (batch + width - 1) / width;
    const int64_t rows = round_up(std::max<int64_t>(n_out, 1), kPanelRound);
    const int64_t tiles = (rows + tile_rows - 1) / tile_rows;
    if (tiles > 1) {
        job.cursors = static_cast<int32_t*>(
            scratch(Scratch::cursors, static_cast<size_t>(n_in) * sizeof(int32_t)));
    }

    // Alone, a thread takes one unit at a time, so that its panel stays in the cache. Several threads share as many
    // as fit, because every round of units ends in waiting for each other.
    const int64_t unit_bytes = tile_rows * row_bytes;
    const int64_t units = panels * tiles;
    const int64_t together = threads <= 1 || tiles > 1 ? 1 : std::clamp<int64_t>(kTileBytes / unit_bytes, 1, panels);
    T* space = static_cast<T*>(scratch(Scratch::panel, static_cast<size_t>(unit_bytes * together)));

    constexpr int64_t most_ranges = 256;
    int64_t first_columns[most_ranges + 1];
    const int64_t ranges = threads <= 1 ? 1 : std::min<int64_t>({most_ranges, 2 * int64_t{threads}, (n_in + 15) / 16});
    cut_columns(job.layer, ranges, first_columns);

    const auto unit_at = [&](int64_t index, int64_t slot) {
        const int64_t panel = index / tiles, tile = index % tiles;
        Unit<T> unit;
        unit.first_sample = panel * width;
        unit.samples = std::min(width, batch - unit.first_sample);
        unit.rows = {tile * tile_rows, std::min(n_out, (tile + 1) * tile_rows), unit_bytes > kPrefetchBytes};
        unit.panel = space + slot * (unit_bytes / static_cast<int64_t>(sizeof(T)));
        return unit;
    };
    for (int64_t index = 0; index < units; index += together) {
        const int64_t here = std::min(together, units - index);
        if (job.cursors != nullptr && index % tiles == 0)
            std::memset(job.cursors, 0, static_cast<size_t>(n_in) * sizeof(int32_t));
        // First the pieces of dy to transpose, then the ranges of columns, which wait until all pieces are there.
        // Chunks are handed out in order, so whoever waits does so for work that is already under way.
        const int64_t pieces_each = threads <= 1 ? 1 : std::max<int64_t>(1, threads / here);
        const int64_t piece_rows = round_up((tile_rows + pieces_each - 1) / pieces_each, kPanelRound);
        const int64_t pieces = here * pieces_each;
        std::atomic<int64_t> ready{0};
        parallel_for(threads, pieces + ranges, [&](int64_t chunk) {
            if (chunk < pieces) {
                const Unit<T> unit = unit_at(index + chunk / pieces_each, chunk / pieces_each);
                const int64_t first = unit.rows.first + chunk % pieces_each * piece_rows;
                const int64_t count = std::min(piece_rows, unit.rows.end - first);
                if (count > 0) {
                    with_backward_bytes<T>(unit.samples, [&](auto bytes) {
                        constexpr int PanelBytes = decltype(bytes)::value;
                        pack<T, PanelBytes>(dy + unit.first_sample * dy_stride + first, dy_stride, unit.samples, count,
                                            unit.panel + (first - unit.rows.first) * (PanelBytes / sizeof(T)));
                    });
                }
                ready.fetch_add(1, std::memory_order_release);
                return;
            }
            wait_until([&] { return ready.load(std::memory_order_acquire) == pieces; });
            for (int64_t slot = 0; slot < here; ++slot) {
                const Unit<T> unit = unit_at(index + slot, slot);
                with_backward_bytes<T>(unit.samples, [&](auto bytes) {
                    backward_columns_any<T, decltype(bytes)::value>(job, unit, first_columns[chunk - pieces],
                                                                    first_columns[chunk - pieces + 1]);
                });
            }
        });
    }
}

}  // namespace wb::WB_ISA
