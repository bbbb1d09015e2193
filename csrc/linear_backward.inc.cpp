// dx = dy W and the gradient of every connection, in one pass over the columns. dy is transposed into a panel that
// all threads read; a thread owns ranges of columns, and with them their dx and their connections.

// The lane sums of as many vectors as a vector has lanes, in order. Where one side of an addition can be a blend, it
// is: blends are cheaper than shuffles.
template <class T, int Bytes>
WB_INLINE Vec<T, Bytes> sum_lanes(const T* from) {
    constexpr int lanes = Bytes / sizeof(T);
    using V = Vec<T, Bytes>;
    V v[lanes];
    for (int i = 0; i < lanes; ++i) v[i] = load<T, Bytes>(from + i * lanes);
    V low, high;  // each lane: the sum of one vector's first, or second, 16 bytes
    if constexpr (sizeof(T) == 4) {
        const auto add_halves = [](V a, V b) {  // a0+a2 a1+a3 b0+b2 b1+b3
            if constexpr (Bytes == 16) return WB_SHUFFLE(a, b, 0, 1, 6, 7) + WB_SHUFFLE(a, b, 2, 3, 4, 5);
            else
                return WB_SHUFFLE(a, b, 0, 1, 10, 11, 4, 5, 14, 15) + WB_SHUFFLE(a, b, 2, 3, 8, 9, 6, 7, 12, 13);
        };
        const auto add_pairs = [](V a, V b) {  // a0+a1 a2+a3 b0+b1 b2+b3
            if constexpr (Bytes == 16) return WB_SHUFFLE(a, b, 0, 2, 4, 6) + WB_SHUFFLE(a, b, 1, 3, 5, 7);
            else
                return WB_SHUFFLE(a, b, 0, 2, 8, 10, 4, 6, 12, 14) + WB_SHUFFLE(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
        };
        low = add_pairs(add_halves(v[0], v[1]), add_halves(v[2], v[3]));
        if constexpr (Bytes == 32) high = add_pairs(add_halves(v[4], v[5]), add_halves(v[6], v[7]));
    } else {
        const auto add_unpacked = [](V a, V b) { return unpack_low<T, Bytes>(a, b) + unpack_high<T, Bytes>(a, b); };
        low = add_unpacked(v[0], v[1]);
        if constexpr (Bytes == 32) high = add_unpacked(v[2], v[3]);
    }
    if constexpr (Bytes == 16) return low;
    else if constexpr (sizeof(T) == 4)
        return WB_SHUFFLE(low, high, 0, 1, 2, 3, 12, 13, 14, 15) + WB_SHUFFLE(low, high, 4, 5, 6, 7, 8, 9, 10, 11);
    else return WB_SHUFFLE(low, high, 0, 1, 6, 7) + WB_SHUFFLE(low, high, 2, 3, 4, 5);
}

// dtheta of the window's connections, from their lane-by-lane products: started with `start`, added to otherwise.
// Summing across lanes is cheaper for many connections at once, which is why the products waited.
template <class T, int PanelBytes>
WB_INLINE void settle_window(const Window<T, PanelBytes>& window, T* products, T* dtheta, bool start) {
    constexpr int Bytes = kStripBytes<PanelBytes>;
    constexpr int lanes = Bytes / sizeof(T);
    for (int i = 0; i < window.count; i += lanes)  // in place: group i of sums lies within group i of products
        store<T, Bytes>(products + i, sum_lanes<T, Bytes>(products + i * lanes));
    const T* sums = products;
    for (int run = 0; run < window.runs_count; ++run) {
        const int32_t* code = window.layer.code + window.runs[run].first;
        T* to = dtheta + window.runs[run].first;
        const int n = window.runs[run].count;
        int i = 0;
        for (; i + lanes <= n; i += lanes) {
            auto value = with_signs<T, Bytes>(load<T, Bytes>(sums + i), load<int32_t, lanes * 4>(code + i));
            if (!start) value += load<T, Bytes>(to + i);
            store<T, Bytes>(to + i, value);
        }
        for (; i < n; ++i) {
            const T value = with_sign(sums[i], code[i]);
            to[i] = start ? value : to[i] + value;
        }
        sums += n;
    }
}

// dx of the block's columns and the products x * dy of the window's connections. dx_block is added to where a column
// continues.
template <class T, int PanelBytes, bool Dx, bool Dtheta, bool Prefetch>
static void gather_window(Window<T, PanelBytes>& window, const T* x_block, T* dx_block, const T* panel_start,
                          T* products) {
    constexpr int W = PanelBytes / sizeof(T);
    constexpr int Bytes = PanelBytes < kVectorBytes ? PanelBytes : kVectorBytes;
    constexpr int vectors = PanelBytes / Bytes;
    constexpr int lanes = Bytes / sizeof(T);
    constexpr int product_bytes = kStripBytes<PanelBytes>;
    constexpr int product_lanes = product_bytes / sizeof(T);
    // A narrow panel has few chains of additions; several connections at a time keep the adders busy.
    constexpr int chains = vectors >= 4 ? 1 : 4 / vectors;
    using V = Vec<T, Bytes>;
    const char* panel = reinterpret_cast<const char*>(panel_start);
    window.decode();
    if constexpr (Prefetch) {
        for (int i = 0; i < kPrefetchAhead; ++i) prefetch_row<PanelBytes>(panel, window.offset[i]);
    }
    const uint32_t* offset = window.offset;
    const T* weight = window.weight;
    for (int piece = 0; piece < window.pieces_count; ++piece) {
        const auto& part = window.pieces[piece];
        const T* x = x_block + static_cast<int64_t>(part.column) * W;
        T* dx = dx_block + static_cast<int64_t>(part.column) * W;
        V in[vectors], out[chains][vectors];
        for (int i = 0; i < vectors; ++i) {
            if constexpr (Dtheta) in[i] = load<T, Bytes>(x + i * lanes);
            for (int chain = 0; chain < chains; ++chain) out[chain][i] = V{};
            if (Dx && part.continued) out[0][i] = load<T, Bytes>(dx + i * lanes);
        }
        const auto connection = [&](int at, V* to) __attribute__((always_inline)) {
            const T* dy = reinterpret_cast<const T*>(panel + offset[at]);
            if constexpr (Prefetch) prefetch_row<PanelBytes>(panel, offset[at + kPrefetchAhead]);
            V w, product, other;
            if constexpr (Dx) w = splat<T, Bytes>(weight[at]);
            for (int i = 0; i < vectors; ++i) {
                V value = load<T, Bytes>(dy + i * lanes);
                keep(value);
                if constexpr (Dx) to[i] += w * value;
                if constexpr (Dtheta) {  // two chains: half the latency of one
                    if (i == 0) product = in[0] * value;
                    else if (i == 1) other = in[1] * value;
                    else if (i % 2 == 0) product += in[i] * value;
                    else other += in[i] * value;
                }
            }
            if constexpr (Dtheta) {
                if constexpr (vectors > 1) product += other;
                if constexpr (Bytes > product_bytes)
                    store<T, product_bytes>(products + at * product_lanes, fold_halves<T>(product));
                else store<T, Bytes>(products + at * lanes, product);
            }
        };
        int at = 0;
        for (; at + chains <= part.count; at += chains) {
            for (int chain = 0; chain < chains; ++chain) connection(at + chain, out[chain]);
        }
        if constexpr (chains > 1) {
            for (; at < part.count; ++at) connection(at, out[0]);
        }
        offset += part.count;
        weight += part.count;
        if constexpr (Dtheta) products += part.count * product_lanes;
        if constexpr (Dx) {
            for (int i = 0; i < vectors; ++i) {
                V sum = out[0][i];
                for (int chain = 1; chain < chains; ++chain) sum += out[chain][i];
                store<T, Bytes>(dx + i * lanes, sum);
            }
        }
    }
}

// The part of the backward pass that one panel of dy allows.
template <class T>
struct Unit {
    int64_t first_sample, samples;  // which samples
    int64_t first_row, end_row;     // which rows: all of them, unless the layer is too large for one panel
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
    int32_t* cursors;  // as in forward_tile; null without tiles
};

// dx and dtheta of the columns [first_column, end_column), as far as this unit of dy goes.
template <class T, int PanelBytes, bool Dx, bool Dtheta, bool Prefetch>
static void backward_columns(const Backward<T>& job, const Unit<T>& unit, int64_t first_column, int64_t end_column) {
    constexpr int W = PanelBytes / sizeof(T);
    alignas(64) T x_block[kBlockColumns * W];
    alignas(64) T dx_block[kBlockColumns * W];
    alignas(64) T products[kWindow * kStripBytes<PanelBytes> / sizeof(T)];
    const Layer<T>& layer = job.layer;
    const T* x = job.x + unit.first_sample * job.x_stride;
    T* dx = Dx ? job.dx + unit.first_sample * job.dx_stride : nullptr;
    Window<T, PanelBytes> window(layer, unit.first_row);
    const auto finish_window = [&] {
        gather_window<T, PanelBytes, Dx, Dtheta, Prefetch>(window, x_block, dx_block, unit.panel, products);
        if constexpr (Dtheta) settle_window<T, PanelBytes>(window, products, job.dtheta, unit.first_sample == 0);
        window.clear();
    };
    for (int64_t first = first_column; first < end_column; first += kBlockColumns) {
        const int64_t columns = std::min(kBlockColumns, end_column - first);
        if (Dtheta && layer.begin(first) != layer.begin(first + columns))
            pack<T, PanelBytes>(x + first, job.x_stride, unit.samples, columns, x_block);
        for (int64_t c = 0; c < columns; ++c) {
            int64_t begin = layer.begin(first + c);
            const int64_t end = layer.begin(first + c + 1);
            int64_t stop = end;
            if (job.cursors != nullptr) {
                begin += job.cursors[first + c];
                if (unit.end_row < layer.n_out) stop = stop_before(layer, begin, end, unit.end_row);
                job.cursors[first + c] += static_cast<int32_t>(stop - begin);
            }
            if (Dx && begin == stop) std::memset(dx_block + c * W, 0, PanelBytes);
            // A column is cut only where its own length asks for it, never where the window happens to be full: the
            // order of its additions must not depend on where this range of columns began.
            for (int64_t k = begin; k < stop;) {
                const int64_t more = std::min<int64_t>(stop - k, kWindow);
                if (!window.fits(more)) finish_window();
                window.add(c, k, more, k > begin);
                k += more;
            }
        }
        finish_window();
        if constexpr (Dx) {
            if (unit.first_row > 0) unpack<T, PanelBytes, true>(dx_block, unit.samples, columns, dx + first, job.dx_stride);
            else unpack<T, PanelBytes>(dx_block, unit.samples, columns, dx + first, job.dx_stride);
        }
    }
}

// Picks the variant: which gradients are wanted, and whether the panel outgrows the cache.
template <class T, int PanelBytes>
static void backward_columns_any(const Backward<T>& job, const Unit<T>& unit, int64_t first, int64_t end) {
    const bool prefetch = (unit.end_row - unit.first_row) * PanelBytes > kPrefetchBytes;
    const auto pick = [&](auto dx, auto dtheta) {
        constexpr bool Dx = decltype(dx)::value, Dtheta = decltype(dtheta)::value;
        if (prefetch) backward_columns<T, PanelBytes, Dx, Dtheta, true>(job, unit, first, end);
        else backward_columns<T, PanelBytes, Dx, Dtheta, false>(job, unit, first, end);
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
            const int32_t code = layer.code[k];
            const T dy = job.dy[row_of(code)];
            sum += with_sign(layer.theta[k], code) * dy;
            if (job.dtheta != nullptr) job.dtheta[k] = with_sign(value * dy, code);
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

template <class T>
static void linear_backward(const T* x, int64_t x_stride, const T* dy, int64_t dy_stride, T* dx, int64_t dx_stride,
                            T* dtheta, int64_t batch, int64_t n_in, int64_t n_out, const int64_t* colptr,
                            const int32_t* code, const T* theta, int threads) {
    Backward<T> job{{n_in, n_out, colptr, code, theta}, x, x_stride, dy, dy_stride, dx, dx_stride, dtheta, nullptr};
    const int64_t connections = job.layer.connections();
    if (batch <= 0 && dtheta != nullptr) std::fill(dtheta, dtheta + connections, T(0));
    if (batch <= 0 || n_in <= 0 || (dx == nullptr && dtheta == nullptr)) return;
    if (batch == 1) return backward_single(job);
    if ((connections + n_in + n_out) * batch < kParallelWork) threads = 1;

    // The batch is cut into panels, and panels into tiles of rows if they are too large; neither depends on threads.
    const int64_t width = kPanelBytes / sizeof(T);
    const int64_t panels = (batch + width - 1) / width;
    const int64_t rows = round_up(std::max<int64_t>(n_out, 1), kPanelRound);
    const int64_t tile_rows = std::min(rows, kTileBytes / kPanelBytes);
    const int64_t tiles = (rows + tile_rows - 1) / tile_rows;
    if (tiles > 1) {
        job.cursors = static_cast<int32_t*>(
            scratch(Scratch::cursors, static_cast<size_t>(n_in) * sizeof(int32_t)));
    }

    // Alone, a thread takes one unit at a time, so that its panel stays in the cache. Several threads share as many
    // as fit, because every round of units ends in waiting for each other.
    const int64_t unit_bytes = tile_rows * kPanelBytes;
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
        unit.first_row = tile * tile_rows;
        unit.end_row = std::min(n_out, unit.first_row + tile_rows);
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
                const int64_t first = unit.first_row + chunk % pieces_each * piece_rows;
                const int64_t count = std::min(piece_rows, unit.end_row - first);
                if (count > 0) {
                    with_panel_bytes<T>(unit.samples, [&](auto bytes) {
                        constexpr int PanelBytes = decltype(bytes)::value;
                        pack<T, PanelBytes>(dy + unit.first_sample * dy_stride + first, dy_stride, unit.samples, count,
                                            unit.panel + (first - unit.first_row) * (PanelBytes / sizeof(T)));
                    });
                }
                ready.fetch_add(1, std::memory_order_release);
                return;
            }
            while (ready.load(std::memory_order_acquire) < pieces) pause_briefly();
            for (int64_t slot = 0; slot < here; ++slot) {
                const Unit<T> unit = unit_at(index + slot, slot);
                with_panel_bytes<T>(unit.samples, [&](auto bytes) {
                    backward_columns_any<T, decltype(bytes)::value>(job, unit, first_columns[chunk - pieces],
                                                                    first_columns[chunk - pieces + 1]);
                });
            }
        });
    }
}
