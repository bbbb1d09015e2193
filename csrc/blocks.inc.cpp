// From columns of a layer to dense blocks of W^T and back: each column is a row of the block, so both ways run through
// memory in order.
//
// Layers with most of their connections are multiplied block by block as dense matrices. A number of a block stands for a
// few multiply-adds only, and a loop over single connections would take as long as half of the product: where most rows
// are active, 32 of them at a time are put in place by a permutation or two.
#pragma once

#include "guard.inc.cpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace wb::WB_ISA {

// Whether the rows of one column rise and are inside of the layer; and whether a theta is below 0, if any is given.
template <class T>
static int column_fault(const int32_t* packed_rows, const T* theta, int64_t count, int64_t n_out) {
    if (count == 0) return WB_FINE;
    constexpr int64_t lanes = kVectorBytes / 4;
    const Vec<int32_t> rows = splat<int32_t>(INT32_MAX);
    Vec<int32_t> rise = splat<int32_t>(-1), below = {};  // differences of rows, whose sign says that they rise
    int64_t k = 1;
    for (; k + lanes <= count; k += lanes)
        rise &= (load<int32_t>(packed_rows + k - 1) & rows) - (load<int32_t>(packed_rows + k) & rows);
    int32_t rising = -1;
    for (int64_t lane = 0; lane < lanes; ++lane) rising &= rise[lane];
    for (; k < count; ++k) rising &= (packed_rows[k - 1] & INT32_MAX) - (packed_rows[k] & INT32_MAX);
    if (rising >= 0 || row_of(packed_rows[count - 1]) >= n_out) return WB_BAD_INDEX;
    if (theta == nullptr) return WB_FINE;
    if constexpr (sizeof(T) == 4) {  // only a number whose sign bit is set may be below 0: -0 and NaN are not
        for (k = 0; k + lanes <= count; k += lanes) below |= load<int32_t>(theta + k);
        int32_t any = 0;
        for (int64_t lane = 0; lane < lanes; ++lane) any |= below[lane];
        if (any >= 0) return any_below_zero(theta + k, count - k) ? WB_DORMANT : WB_FINE;
    }
    return any_below_zero(theta, count) ? WB_DORMANT : WB_FINE;
}

// Rows [first, n_out) of a column whose connections from k on lie there.
template <class T>
static void expand_rest(const int32_t* packed_rows, const T* theta, int64_t k, int64_t end, int64_t first, int64_t n_out,
                        T* out) {
    std::fill(out + first, out + n_out, T(0));
    for (; k < end; ++k) out[row_of(packed_rows[k])] = with_sign(theta[k], packed_rows[k]);
}

// 32 rows from `row` on, one connection at a time.
template <class T>
static const int32_t* expand_few(const Layer<T>& layer, const int32_t* at, const int32_t* end, int64_t row, T* out) {
    std::fill(out, out + 32, T(0));
    for (; at < end && row_of(*at) < row + 32; ++at)
        out[row_of(*at) - row] = with_sign(layer.theta[at - layer.packed_rows], *at);
    return at;
}

template <class T, bool Add>
static void gather_few(const int32_t* packed_rows, const T* from, int64_t k, int64_t end, T* dtheta) {
    for (; k < end; ++k) {
        const T value = with_sign(from[row_of(packed_rows[k])], packed_rows[k]);
        dtheta[k] = Add ? dtheta[k] + value : value;
    }
}

#if defined(__AVX2__)

// The bits of eight integers together.
WB_INLINE uint32_t all_bits(__m256i bits) {
    const __m128i half = _mm_or_si128(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    const __m128i quarter = _mm_or_si128(half, _mm_unpackhi_epi64(half, half));
    const uint64_t pair = static_cast<uint64_t>(_mm_cvtsi128_si64(quarter));
    return static_cast<uint32_t>(pair | pair >> 32);
}

#if defined(__AVX512F__)

constexpr int64_t kWordLanes = 16;
using Words = __m512i;
WB_INLINE Words words(int32_t value) { return _mm512_set1_epi32(value); }
WB_INLINE Words read(const void* from) { return _mm512_loadu_si512(from); }
WB_INLINE void write(float* to, Words value) { _mm512_storeu_si512(to, value); }
WB_INLINE Words row_words(Words packed) { return _mm512_and_si512(packed, words(INT32_MAX)); }
WB_INLINE Words minus(Words a, Words b) { return _mm512_sub_epi32(a, b); }
WB_INLINE Words signed_words(Words values, Words packed) {
    return _mm512_ternarylogic_epi32(values, packed, words(INT32_MIN), 0x78);  // values ^ (packed & INT32_MIN)
}

// Bit i: row + i is among the rows of the next 32 connections, of which only `left` count if there are Few. Shifts by 32
// or more, of later rows, leave no bit.
template <bool Few>
WB_INLINE uint32_t active_rows(const int32_t* packed_rows, Words row, int64_t left) {
    Words a = _mm512_sllv_epi32(words(1), minus(row_words(read(packed_rows)), row));
    Words b = _mm512_sllv_epi32(words(1), minus(row_words(read(packed_rows + 16)), row));
    if constexpr (Few) {
        const uint32_t own = (uint32_t{1} << left) - 1;
        a = _mm512_maskz_mov_epi32(static_cast<__mmask16>(own), a);
        b = _mm512_maskz_mov_epi32(static_cast<__mmask16>(own >> 16), b);
    }
    const Words bits = _mm512_or_si512(a, b);
    return all_bits(_mm256_or_si256(_mm512_extracti32x8_epi32(bits, 0), _mm512_extracti32x8_epi32(bits, 1)));
}

// The connections of a set of rows, the first of `values` for the first of them, each in its place; others are 0.
WB_INLINE Words in_place(Words values, uint32_t rows) {
    return _mm512_maskz_expand_epi32(static_cast<__mmask16>(rows), values);
}

// The numbers from[at], for at below 32.
WB_INLINE Words look_up(const float* from, Words at) { return _mm512_permutex2var_epi32(read(from), at, read(from + 16)); }
WB_INLINE Words where_below(Words at, int32_t limit, Words yes, Words no) {
    return _mm512_mask_mov_epi32(no, _mm512_cmplt_epu32_mask(at, words(limit)), yes);
}

#else

constexpr int64_t kWordLanes = 8;
using Words = __m256i;
WB_INLINE Words words(int32_t value) { return _mm256_set1_epi32(value); }
WB_INLINE Words read(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
WB_INLINE void write(float* to, Words value) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value); }
WB_INLINE Words row_words(Words packed) { return _mm256_and_si256(packed, words(INT32_MAX)); }
WB_INLINE Words minus(Words a, Words b) { return _mm256_sub_epi32(a, b); }
WB_INLINE Words signed_words(Words values, Words packed) {
    return _mm256_xor_si256(values, _mm256_and_si256(packed, words(INT32_MIN)));
}

template <bool Few>
WB_INLINE uint32_t active_rows(const int32_t* packed_rows, Words row, int64_t left) {
    Words bits[4];
    for (int i = 0; i < 4; ++i) {
        bits[i] = _mm256_sllv_epi32(words(1), minus(row_words(read(packed_rows + 8 * i)), row));
        if constexpr (Few) {
            const Words own = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            bits[i] = _mm256_and_si256(bits[i], _mm256_cmpgt_epi32(words(static_cast<int32_t>(left) - 8 * i), own));
        }
    }
    return all_bits(_mm256_or_si256(_mm256_or_si256(bits[0], bits[1]), _mm256_or_si256(bits[2], bits[3])));
}

// For each set of eight rows, which connection belongs to each: the number of rows of the set before it, and for a row
// that is not in the set one with the top bit set.
struct ExpandTable {
    int8_t lanes[256][8];
    constexpr ExpandTable() : lanes{} {
        for (int set = 0; set < 256; ++set)
            for (int lane = 0, before = 0; lane < 8; before += set >> lane & 1, ++lane)
                lanes[set][lane] = static_cast<int8_t>(set >> lane & 1 ? before : -1);
    }
};
static constexpr ExpandTable kExpand;

WB_INLINE Words in_place(Words values, uint32_t rows) {
    const Words lanes =
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kExpand.lanes[rows & 255])));
    return _mm256_andnot_si256(_mm256_srai_epi32(lanes, 31), _mm256_permutevar8x32_epi32(values, lanes));
}

// The numbers from[at], for at below 16.
WB_INLINE Words look_up(const float* from, Words at) {
    const Words low = _mm256_permutevar8x32_epi32(read(from), at), high = _mm256_permutevar8x32_epi32(read(from + 8), at);
    return _mm256_blendv_epi8(low, high, _mm256_cmpgt_epi32(at, words(7)));
}
WB_INLINE Words where_below(Words at, int32_t limit, Words yes, Words no) {
    return _mm256_blendv_epi8(yes, no, _mm256_cmpgt_epi32(_mm256_xor_si256(at, words(INT32_MIN)),
                                                          words((limit - 1) ^ INT32_MIN)));
}

#endif

// A column of which all rows are active.
static void expand_full(const int32_t* packed_rows, const float* theta, int64_t n_out, float* out) {
    int64_t row = 0;
    for (; row + kWordLanes <= n_out; row += kWordLanes) write(out + row, signed_words(read(theta + row), read(packed_rows + row)));
    for (; row < n_out; ++row) out[row] = with_sign(theta[row], packed_rows[row]);
}

// 32 rows of one column from `row` on; its connections from `at` on lie there or behind, and the next 32 can be read.
// Returns the first behind.
template <bool Few>
WB_INLINE const int32_t* expand_32(const Layer<float>& layer, const int32_t* at, int64_t left, int64_t row, float* out) {
    const int64_t to_theta = reinterpret_cast<intptr_t>(layer.theta) - reinterpret_cast<intptr_t>(layer.packed_rows);
    uint32_t active = active_rows<Few>(at, words(static_cast<int32_t>(row)), left);
    for (int64_t i = 0; i < 32; i += kWordLanes) {
        const void* theta = reinterpret_cast<const void*>(reinterpret_cast<intptr_t>(at) + to_theta);
        write(out + i, in_place(signed_words(read(theta), read(at)), active));
        at += __builtin_popcount(active & ((1u << kWordLanes) - 1));
        active >>= kWordLanes;
    }
    return at;
}

// The same, however many connections are left.
WB_INLINE const int32_t* expand_rows(const Layer<float>& layer, const int32_t* at, const int32_t* end, int64_t row,
                                     float* out) {
    if (end - at >= 32) return expand_32<false>(layer, at, 32, row, out);
    if (layer.packed_rows + layer.connections() - at >= 32) return expand_32<true>(layer, at, end - at, row, out);
    return expand_few(layer, at, end, row, out);
}

// Several columns side by side: each of 32 rows has to wait for the count of those before it, and columns do not wait
// for each other. `room`: up to which row they may be written, of rows behind the last 0.
template <int Columns>
static void expand_columns(const Layer<float>& layer, int64_t first, float* out, int64_t stride, int64_t room) {
    const int32_t* at[Columns];
    const int32_t* end[Columns];
    bool enough = true;
    for (int c = 0; c < Columns; ++c) {
        at[c] = layer.packed_rows + layer.begin(first + c), end[c] = layer.packed_rows + layer.begin(first + c + 1);
        enough &= end[c] - at[c] >= 32;
    }
    int64_t row = 0;
    for (; enough && row + 32 <= room; row += 32) {
        for (int c = 0; c < Columns; ++c) {
            at[c] = expand_32<false>(layer, at[c], 32, row, out + c * stride + row);
            enough &= end[c] - at[c] >= 32;
        }
    }
    for (; row + 32 <= room; row += 32)
        for (int c = 0; c < Columns; ++c) at[c] = expand_rows(layer, at[c], end[c], row, out + c * stride + row);
    for (int c = 0; c < Columns && row < layer.n_out; ++c)
        expand_rest(layer.packed_rows, layer.theta, at[c] - layer.packed_rows, end[c] - layer.packed_rows, row, layer.n_out,
                    out + c * stride);
}

template <bool Add>
static void gather_column(const int32_t* packed_rows, const float* from, int64_t begin, int64_t end, float* dtheta) {
    const auto gather = [&](int64_t k) __attribute__((always_inline)) {
        const Words packed = read(packed_rows + k);
        int64_t row = row_of(packed_rows[k]);
        const int64_t last = row_of(packed_rows[k + kWordLanes - 1]);
        Words at = minus(row_words(packed), words(static_cast<int32_t>(row)));
        Words values = look_up(from + row, at);
        while (last - row >= 2 * kWordLanes) {
            row += 2 * kWordLanes, at = minus(at, words(2 * kWordLanes));
            values = where_below(at, 2 * kWordLanes, look_up(from + row, at), values);
        }
        values = signed_words(values, packed);
        if constexpr (Add) store<float>(dtheta + k, load<float>(dtheta + k) + (Vec<float>)values);
        else write(dtheta + k, values);
    };
    int64_t k = begin;
    for (; k + kWordLanes <= end; k += kWordLanes) gather(k);
    if (!Add && k < end && k > begin) gather(end - kWordLanes);  // some of them twice
    else gather_few<float, Add>(packed_rows, from, k, end, dtheta);
}

#endif  // __AVX2__


// All rows of some columns, each at a multiple of `stride`, of which rows up to `room` may be written.
template <class T>
static void expand_block(const Layer<T>& layer, int64_t first, int64_t columns, T* out, int64_t stride, int64_t room) {
#if defined(__AVX2__)
    if constexpr (sizeof(T) == 4) {
        for (int64_t c = 0; c < columns;) {
            const int64_t begin = layer.begin(first + c), count = layer.begin(first + c + 1) - begin;
            T* to = out + c * stride;
            if (count == layer.n_out) expand_full(layer.packed_rows + begin, layer.theta + begin, count, to), ++c;
            else if (c + 4 <= columns) expand_columns<4>(layer, first + c, to, stride, room), c += 4;
            else expand_columns<1>(layer, first + c, to, stride, room), ++c;
        }
        return;
    }
#endif
    (void)room;
    for (int64_t c = 0; c < columns; ++c)
        expand_rest(layer.packed_rows, layer.theta, layer.begin(first + c), layer.begin(first + c + 1), 0, layer.n_out,
                    out + c * stride);
}

// The same for 32 rows from `row` on; `cursors` are where each column has come to, and move on.
template <class T>
static void expand_panel(const Layer<T>& layer, int64_t first, int64_t columns, const int32_t** cursors, int64_t row, T* out) {
    for (int64_t c = 0; c < columns; ++c) {
        const int32_t* end = layer.packed_rows + layer.begin(first + c + 1);
#if defined(__AVX2__)
        if constexpr (sizeof(T) == 4) {
            cursors[c] = expand_rows(layer, cursors[c], end, row, out + 32 * c);
            continue;
        }
#endif
        cursors[c] = expand_few(layer, cursors[c], end, row, out + 32 * c);
    }
}

// dtheta of some columns from the gradient of their block, or what is added to it. Behind the block 32 numbers may be read.
template <class T, bool Add>
static void gather_block(const Layer<T>& layer, int64_t first, int64_t columns, const T* block, int64_t stride, T* dtheta) {
    for (int64_t c = 0; c < columns; ++c) {
        const int64_t begin = layer.begin(first + c), end = layer.begin(first + c + 1);
#if defined(__AVX2__)
        if constexpr (sizeof(T) == 4) {
            gather_column<Add>(layer.packed_rows, block + c * stride, begin, end, dtheta);
            continue;
        }
#endif
        gather_few<T, Add>(layer.packed_rows, block + c * stride, begin, end, dtheta);
    }
}

}  // namespace wb::WB_ISA
