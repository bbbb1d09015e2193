// A window: the next few hundred connections of a block of columns, decoded for the inner loops.
//
// The index is stored compactly (row and sign in one word), which costs several instructions to take apart. Done for
// many connections at once it is vector work; the inner loops then only load an offset and broadcast a weight.

constexpr int kWindow = 256;  // connections
constexpr int kPieces = 128;  // parts of columns in a window

template <class T, int PanelBytes>
struct Window {
    // Connections of one column, in the order they are stored.
    struct Piece {
        int32_t column;  // within the block
        int32_t count;
        bool continued;  // the column began in an earlier window
    };
    // Connections that are neighbours in memory: all of the window, unless columns are cut by tiles.
    struct Run {
        int64_t first;
        int32_t count;
    };

    const Layer<T>& layer;
    uint32_t origin;  // first row of the panel, as an offset
    int count = 0, pieces_count = 0, runs_count = 0;
    Piece pieces[kPieces];
    Run runs[kPieces];
    alignas(64) uint32_t offset[kWindow + 32];  // of the row within the panel, in bytes
    alignas(64) T weight[kWindow + 32];         // sign * theta

    Window(const Layer<T>& layer_, int64_t first_row)
        : layer(layer_), origin(static_cast<uint32_t>(first_row * PanelBytes)) {
        std::memset(offset, 0, sizeof offset);  // looked at by prefetches beyond the last connection
    }

    WB_INLINE bool fits(int64_t more) const { return more <= kWindow - count && pieces_count < kPieces; }

    WB_INLINE void add(int64_t column, int64_t first, int64_t more, bool continued) {
        pieces[pieces_count++] = {static_cast<int32_t>(column), static_cast<int32_t>(more), continued};
        if (runs_count > 0 && runs[runs_count - 1].first + runs[runs_count - 1].count == first)
            runs[runs_count - 1].count += static_cast<int32_t>(more);
        else runs[runs_count++] = {first, static_cast<int32_t>(more)};
        count += static_cast<int>(more);
    }

    void decode() {
        constexpr int shift = PanelBytes == 16 ? 4 : PanelBytes == 32 ? 5 : PanelBytes == 64 ? 6 : 7;
        constexpr int lanes = kVectorBytes / static_cast<int>(sizeof(T));
        using Codes = Vec<int32_t, lanes * 4>;
        using Offsets = Vec<uint32_t, lanes * 4>;
        const int64_t total = layer.connections();
        int at = 0;
        for (int run = 0; run < runs_count; ++run) {
            const int32_t* code = layer.code + runs[run].first;
            const T* theta = layer.theta + runs[run].first;
            const int n = runs[run].count;
            // Whole vectors, also past the end of the run: what is too much is overwritten or never used.
            const int64_t readable = total - runs[run].first;
            int i = 0;
            for (; i < n && i + lanes <= readable; i += lanes) {
                const Codes codes = load<int32_t, lanes * 4>(code + i);
                store<uint32_t, lanes * 4>(offset + at + i, ((Offsets)codes << shift) - origin);
                store<T>(weight + at + i, with_signs<T, kVectorBytes>(load<T>(theta + i), codes));
            }
            for (; i < n; ++i) {
                offset[at + i] = (static_cast<uint32_t>(code[i]) << shift) - origin;
                weight[at + i] = with_sign(theta[i], code[i]);
            }
            at += n;
        }
    }

    WB_INLINE void clear() { count = pieces_count = runs_count = 0; }
};

// Asks for the row of the connection kPrefetchAhead places further on.
template <int PanelBytes>
WB_INLINE void prefetch_row(const char* panel, uint32_t offset) {
    for (int line = 0; line < PanelBytes; line += 64) __builtin_prefetch(panel + offset + line);
}

// Where the connections of a column stop that lie above `end_row`: rows are sorted.
template <class T>
WB_INLINE int64_t stop_before(const Layer<T>& layer, int64_t first, int64_t end, int64_t end_row) {
    while (first + 8 <= end && row_of(layer.code[first + 7]) < end_row) first += 8;
    while (first < end && row_of(layer.code[first]) < end_row) ++first;
    return first;
}
