// Sums across the lanes of vectors, for the gradients of connections: each is a sum over the samples of a panel.
//
// A connection leaves one vector of partial sums. Those wait until there are many: summing across the lanes of a whole
// group at once is cheaper than one by one.

constexpr int64_t kSumsWaiting = 256;

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

// Connections that wait: neighbours in memory.
struct WaitingRun {
    int64_t begin, end;
};

// Adds the sums of the waiting connections, signed, to dtheta, or starts dtheta with them. `sums` holds the vectors of
// all runs, one after another, and room for whole groups.
template <class T, int Bytes>
static __attribute__((noinline)) void settle_sums(T* sums, int64_t count, const WaitingRun* runs, int runs_count,
                                                  const int32_t* all_codes, T* all_dtheta, bool start) {
    constexpr int lanes = Bytes / sizeof(T);
    using V = Vec<T, Bytes>;
    // In place: a group of sums is written where an earlier group, or the same, has been read.
    for (int64_t i = 0; i < count; i += lanes)
        store<T, Bytes>(sums + i, sum_lanes<T, Bytes>(sums + i * lanes));
    for (int run = 0; run < runs_count; ++run) {
        const int32_t* code = all_codes + runs[run].begin;
        T* dtheta = all_dtheta + runs[run].begin;
        const int64_t length = runs[run].end - runs[run].begin;
        int64_t i = 0;
        for (; i + lanes <= length; i += lanes) {
            V value = with_signs<T, Bytes>(load<T, Bytes>(sums + i), load<int32_t, lanes * 4>(code + i));
            if (!start) value += load<T, Bytes>(dtheta + i);
            store<T, Bytes>(dtheta + i, value);
        }
        for (; i < length; ++i) {
            const T value = with_sign(sums[i], code[i]);
            dtheta[i] = start ? value : dtheta[i] + value;
        }
        sums += length;
    }
}
