// Random numbers as a function of (seed, stream, step, index): Philox4x32-10 (Salmon et al., SC 2011), eight blocks
// at a time. The definition of every number is that of src/wirebound/ops/philox.py.
//
//   key = seed; counter = (block, step low, step high, stream)
//   word j             output j % 4 of block j / 4
//   normals 32g..32g+31   blocks 8g..8g+7 (lane = block % 8); pair (w0, w1) gives outputs 0 and 1, (w2, w3) 2 and 3;
//                         number 32g + 8o + lane is output o of that lane
#pragma once

#include "running_sums.inc.cpp"

namespace wb::WB_ISA {

typedef Vec<uint64_t, 32> Wide;  // four 32-bit words in the low halves; the high halves hold rubbish

// 64-bit products of the low halves.
WB_INLINE Wide multiply_low_halves(Wide a, uint32_t factor) {
#if defined(__AVX2__)
    typedef Vec<int32_t, 32> Halves;
    return (Wide)__builtin_ia32_pmuludq256((Halves)a, (Halves)splat<uint64_t, 32>(factor));
#elif defined(__SSE2__)
    typedef Vec<int32_t, 16> Halves;
    typedef Vec<long long, 16> Pair;
    union { Wide whole; Pair part[2]; } from{a}, to;
    const Pair b = (Pair)splat<uint64_t, 16>(factor);
    for (int i = 0; i < 2; ++i) to.part[i] = (Pair)__builtin_ia32_pmuludq128((Halves)from.part[i], (Halves)b);
    return to.whole;
#else
    return (a & 0xffffffffu) * factor;
#endif
}

// The keys of all rounds, as vectors in memory: an instruction takes one from there for nothing.
struct PhiloxKeys {
    Wide key[10][2];

    explicit PhiloxKeys(uint64_t seed) {
        uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
        for (int round = 0; round < 10; ++round) {
            key[round][0] = splat<uint64_t, 32>(key0);
            key[round][1] = splat<uint64_t, 32>(key1);
            key0 += 0x9E3779B9u;
            key1 += 0xBB67AE85u;
        }
    }
};

// Philox states of some groups of eight. Of each group one vector holds the even lanes and one the odd ones, so that
// no shuffle is ever needed.
template <int Groups>
struct Philox {
    static constexpr int kHalves = 2 * Groups;
    Wide word[4][kHalves];

    WB_INLINE void rounds(const PhiloxKeys& keys) {
#pragma GCC unroll 10
        for (int round = 0; round < 10; ++round) {
            for (int half = 0; half < kHalves; ++half) {
                const Wide product0 = multiply_low_halves(word[0][half], 0xD2511F53u);
                const Wide product1 = multiply_low_halves(word[2][half], 0xCD9E8D57u);
                word[0][half] = (product1 >> 32) ^ (word[1][half] ^ keys.key[round][0]);
                word[1][half] = product1;
                word[2][half] = (product0 >> 32) ^ (word[3][half] ^ keys.key[round][1]);
                word[3][half] = product0;
            }
        }
    }
    // Output o of the eight lanes of a group, in order.
    WB_INLINE Words8 output(int group, int o) const {
        return (Words8)((word[o][2 * group] & 0xffffffffu) | (word[o][2 * group + 1] << 32));
    }
};

// Groups group .. group + Groups - 1 of a stream; group g is blocks 8g .. 8g + 7.
template <int Groups>
WB_INLINE Philox<Groups> philox_groups(const PhiloxKeys& keys, uint32_t stream, uint64_t step, uint64_t group) {
    Philox<Groups> state;
    const Wide even = {0, 2, 4, 6};
    for (int half = 0; half < state.kHalves; ++half) {
        state.word[0][half] = even + splat<uint64_t, 32>(8 * (group + half / 2) + half % 2);
        state.word[1][half] = splat<uint64_t, 32>(step & 0xffffffffu);
        state.word[2][half] = splat<uint64_t, 32>(step >> 32);
        state.word[3][half] = splat<uint64_t, 32>(stream);
    }
    state.rounds(keys);
    return state;
}

// Two vectors of 64-bit lanes as lane 0 of both, lane 1 of both ...: (a0 b0 a2 b2) and (a1 b1 a3 b3).
WB_INLINE void interleave(Wide a, Wide b, Wide& even, Wide& odd) {
    typedef Vec<double, 32> Doubles;
    even = (Wide)unpack_low<double, 32>((Doubles)a, (Doubles)b);
    odd = (Wide)unpack_high<double, 32>((Doubles)a, (Doubles)b);
}

// The words of some groups in the order of the stream: 32 of each.
template <int Groups>
static void group_words(const PhiloxKeys& keys, uint32_t stream, uint64_t step, uint64_t group, uint32_t* out) {
    const auto state = philox_groups<Groups>(keys, stream, step, group);
    for (int half = 0; half < state.kHalves; ++half) {
        // Lane i of this half is block 2i + half % 2, of which 64 bits are in each of these.
        const Wide first = (state.word[0][half] & 0xffffffffu) | (state.word[1][half] << 32);
        const Wide second = (state.word[2][half] & 0xffffffffu) | (state.word[3][half] << 32);
        Wide blocks[2];
        interleave(first, second, blocks[0], blocks[1]);
        uint32_t* to = out + 32 * (half / 2) + 4 * (half % 2);
        for (int i = 0; i < 2; ++i) {
            char bytes[32];
            std::memcpy(bytes, &blocks[i], sizeof bytes);
            std::memcpy(to + 8 * i, bytes, 16);
            std::memcpy(to + 8 * i + 16, bytes + 16, 16);
        }
    }
}

static void entry_words(uint64_t seed, uint32_t stream, uint64_t step, int64_t n, uint32_t* out) {
    const PhiloxKeys keys(seed);
    int64_t done = 0;
    for (; done + 32 <= n; done += 32) group_words<1>(keys, stream, step, static_cast<uint64_t>(done) / 32, out + done);
    if (done < n) {
        uint32_t last[32];
        group_words<1>(keys, stream, step, static_cast<uint64_t>(done) / 32, last);
        std::memcpy(out + done, last, static_cast<size_t>(n - done) * sizeof(uint32_t));
    }
}

// Reads a stream in order, two groups at a time.
class WordReader {
public:
    WordReader(uint64_t seed, uint32_t stream, uint64_t step) : keys_(seed), step_(step), stream_(stream) {}

    uint32_t next() {
        if (at_ == kWords) refill();
        return buffer_[at_++];
    }
    // 63 random bits. Words are read in pairs or one by one, never both.
    uint64_t next_63_bits() {
        if (at_ == kWords) refill();
        uint64_t bits;
        std::memcpy(&bits, buffer_ + at_, sizeof bits);
        at_ += 2;
        return bits >> 1;
    }
    // How many of the next `count` words are below each of some bounds; counts are added to.
    void count_below(int64_t count, const uint64_t* bounds, int64_t n_bounds, int64_t* below) {
        while (count > 0) {
            if (at_ == kWords) refill();
            const int here = static_cast<int>(std::min<int64_t>(count, kWords - at_));
            for (int64_t b = 0; b < n_bounds; ++b) {
                if (bounds[b] >> 32) {  // above all words
                    below[b] += here;
                    continue;
                }
                const uint32_t bound = static_cast<uint32_t>(bounds[b]);
                int32_t found = 0;
                for (int i = 0; i < here; ++i) found += buffer_[at_ + i] < bound;
                below[b] += found;
            }
            at_ += here;
            count -= here;
        }
    }

private:
    static constexpr int kWords = 64;
    void refill() {
        group_words<2>(keys_, stream_, step_, group_, buffer_);
        group_ += 2;
        at_ = 0;
    }

    const PhiloxKeys keys_;
    uint64_t step_, group_ = 0;
    uint32_t stream_;
    int at_ = kWords;
    alignas(64) uint32_t buffer_[kWords];
};

// x % n for many x below 2^63: by 2^64 / n, since a division takes ten times as long as a product. The quotient is one
// too small at most.
class Remainder {
public:
    explicit Remainder(int64_t n) : n_(static_cast<uint64_t>(n)), inverse_(~uint64_t{0} / n_) {}
    int64_t operator()(uint64_t x) const {
        __extension__ typedef unsigned __int128 Product;
        const uint64_t quotient = static_cast<uint64_t>(static_cast<Product>(x) * inverse_ >> 64);
        const uint64_t rest = x - quotient * n_;
        return static_cast<int64_t>(rest - (n_ & -static_cast<uint64_t>(rest >= n_)));  // no branch to guess
    }

private:
    uint64_t n_, inverse_;
};

// ---- normals -------------------------------------------------------------------------------------------------------

WB_INLINE Floats8 square_root(Floats8 x) {
#if defined(__AVX__)
    return __builtin_ia32_sqrtps256(x);
#else
    union { Floats8 whole; float part[8]; } value{x};
    for (float& part : value.part) part = std::sqrt(part);
    return value.whole;
#endif
}

// -2 ln(x / 2^24) for x in [1/2, 2^24]: x / 2^24 = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and a polynomial in
// f. Its terms are joined in short chains: waiting for results is what limits this function.
WB_INLINE Floats8 minus_two_log(Floats8 x) {
    const Ints8 bits = (Ints8)x - (24 << 23);
    const Ints8 exponent = (bits - 0x3f3504f3) >> 23;
    const Floats8 f = (Floats8)(bits - (exponent << 23)) - 1.0f;
    const Floats8 e = __builtin_convertvector(exponent, Floats8);
    const Floats8 f2 = f * f, f4 = f2 * f2;
    const Floats8 p01 = f * 4.9999987986e-1f - 6.6666662348e-1f;
    const Floats8 p23 = f * 3.3336115330e-1f - 4.0001429530e-1f;
    const Floats8 p45 = f * 2.4840281692e-1f - 2.8498645574e-1f;
    const Floats8 p67 = f * 2.3029220620e-1f - 2.3353997480e-1f;
    const Floats8 p = (p01 + p23 * f2) + f4 * ((p45 + p67 * f2) - f4 * 1.40753672584e-1f);
    // ln 2 in two parts, the first with few bits, so that e * ln 2 loses nothing.
    return (p * (f2 * f) + (e * 4.24388880e-4f + f2)) + (e * -1.38671875f - 2.0f * f);
}

// Box and Muller: r cos(2 pi u2) and r sin(2 pi u2), with r = sqrt(-2 ln u1).
WB_INLINE Floats8 random_radius(Words8 w) {
    return square_root(minus_two_log(__builtin_convertvector((Ints8)(w >> 8), Floats8) + 0.5f));
}

WB_INLINE void random_direction(Words8 w, Words8& cosine, Words8& sine) {
    // The word, without its low 8 bits, is an angle in units of 2^-32 turns: its top two bits, rounded, are the nearest
    // quarter, the rest is what is left of it, exact.
    const Words8 turned = (w & 0xffffff00u) + (1u << 29);
    const Ints8 rest = (Ints8)(turned & 0x3fffffffu) - (1 << 29);
    const Floats8 angle = __builtin_convertvector(rest, Floats8) * static_cast<float>(6.283185307179586 * 0x1p-32);
    const Floats8 a2 = angle * angle;
    Floats8 s = a2 * -1.9515295891e-4f + 8.3321608736e-3f;
    s = s * a2 - 1.6666654611e-1f;
    s = s * (a2 * angle) + angle;
    Floats8 c = a2 * 2.443315711809948e-5f - 1.388731625493765e-3f;
    c = c * a2 + 4.166664568298827e-2f;
    c = c * (a2 * a2) + (1.0f - 0.5f * a2);
    // Odd quarters swap sine and cosine; cosine is negative in quarters 1 and 2, sine in 2 and 3.
    const Ints8 swap = (Ints8)(turned << 1) < 0;
    cosine = (Words8)(swap ? s : c) ^ ((turned + (1u << 30)) & (1u << 31));
    sine = (Words8)(swap ? c : s) ^ (turned & (1u << 31));
}

// The 32 normals of each group in [first_group, first_group + groups). Each part of the work is a chain of operations
// that wait for each other, so independent chains are put side by side: words of two groups, then both logarithms of
// a group, then both directions.
static void normal_groups(uint64_t seed, uint32_t stream, uint64_t step, uint64_t first_group, int64_t groups,
                          float* out) {
    const PhiloxKeys keys(seed);
    int64_t done = 0;
    constexpr int kAtOnce = kVectorBytes >= 32 ? 2 : 1;  // registers for more are only there with wide vectors
    for (; done + kAtOnce <= groups; done += kAtOnce) {
        const auto state = philox_groups<kAtOnce>(keys, stream, step, first_group + static_cast<uint64_t>(done));
        for (int i = 0; i < 4 * kAtOnce; ++i) store<uint32_t, 32>(out + 32 * done + 8 * i, state.output(i / 4, i % 4));
    }
    if (done < groups) {
        const Philox<1> state = philox_groups<1>(keys, stream, step, first_group + static_cast<uint64_t>(done));
        for (int o = 0; o < 4; ++o) store<uint32_t, 32>(out + 32 * done + 8 * o, state.output(0, o));
    }
    for (int64_t g = 0; g < groups; ++g) {
        float* group = out + 32 * g;
        const Floats8 radius[2] = {random_radius(load<uint32_t, 32>(group)), random_radius(load<uint32_t, 32>(group + 16))};
        Words8 cosine[2], sine[2];
        random_direction(load<uint32_t, 32>(group + 8), cosine[0], sine[0]);
        random_direction(load<uint32_t, 32>(group + 24), cosine[1], sine[1]);
        for (int i = 0; i < 2; ++i) {
            store<float, 32>(group + 16 * i, radius[i] * (Floats8)cosine[i]);
            store<float, 32>(group + 16 * i + 8, radius[i] * (Floats8)sine[i]);
        }
    }
}

static void entry_normals(uint64_t seed, uint32_t stream, uint64_t step, int64_t first, int64_t n, float* out) {
    float group[32];
    for (int64_t done = 0; done < n;) {
        const int64_t index = first + done, skip = index % 32;
        if (skip == 0 && n - done >= 32) {
            const int64_t groups = (n - done) / 32;
            normal_groups(seed, stream, step, static_cast<uint64_t>(index / 32), groups, out + done);
            done += 32 * groups;
        } else {
            normal_groups(seed, stream, step, static_cast<uint64_t>(index / 32), 1, group);
            const int64_t count = std::min<int64_t>(32 - skip, n - done);
            std::memcpy(out + done, group + skip, static_cast<size_t>(count) * sizeof(float));
            done += count;
        }
    }
}

// ---- signs ---------------------------------------------------------------------------------------------------------

constexpr int kSignsAtOnce = kVectorBytes >= 32 ? 16 : 8;

// out[i] = 2^31 where the sign of positions[i] is -1, else 0. Both have room for n rounded up to kSignsAtOnce.
static void negative_signs(uint64_t seed, uint32_t stream, const int64_t* positions, int64_t n, int64_t* out) {
    const PhiloxKeys keys(seed);
    for (int64_t done = 0; done < n; done += kSignsAtOnce) {
        Philox<kSignsAtOnce / 8> state;
        for (int half = 0; half < state.kHalves; ++half) {
            const Wide lanes = load<uint64_t, 32>(positions + done + 4 * half);
            state.word[0][half] = lanes;
            state.word[1][half] = lanes >> 32;
            state.word[2][half] = Wide{};
            state.word[3][half] = splat<uint64_t, 32>(stream);
        }
        state.rounds(keys);
        for (int half = 0; half < state.kHalves; ++half)
            store<uint64_t, 32>(out + done + 4 * half, (state.word[0][half] & 1) << 31);
    }
}

static void entry_signs(uint64_t seed, uint32_t stream, const int64_t* positions, int64_t n, int8_t* out) {
    for (int64_t i = 0; i < n; i += kSignsAtOnce) {
        const int64_t count = std::min<int64_t>(kSignsAtOnce, n - i);
        int64_t here[kSignsAtOnce] = {}, signs[kSignsAtOnce];
        std::copy_n(positions + i, count, here);
        negative_signs(seed, stream, here, count, signs);
        for (int64_t j = 0; j < count; ++j) out[i + j] = signs[j] ? -1 : 1;
    }
}

// ---- samples -------------------------------------------------------------------------------------------------------

// Sorts uniform numbers of [first, first + n): into buckets of less than one by their leading bits, then by insertion,
// which finds nearly all in order.
static void sort_into_buckets(int64_t* values, int64_t count, int64_t first, int64_t n, std::vector<int64_t>& scratch) {
    if (count > 8) {
        int bits = 0;
        while (bits < 62 && (n - 1) >> bits >= 4 * count) ++bits;
        const int64_t buckets = ((n - 1) >> bits) + 1;
        const size_t room = static_cast<size_t>(buckets / 2 + 2 + count);
        if (scratch.size() < room) scratch.resize(room);  // one that shrinks and grows again fills itself with zeros
        int64_t* sorted = scratch.data();
        int32_t* start = reinterpret_cast<int32_t*>(sorted + count);
        std::memset(start, 0, static_cast<size_t>(buckets + 1) * sizeof(int32_t));
        for (int64_t i = 0; i < count; ++i) ++start[((values[i] - first) >> bits) + 1];
        sum_up(start + 1, buckets);
        for (int64_t i = 0; i < count; ++i) sorted[start[(values[i] - first) >> bits]++] = values[i];
        std::memcpy(values, sorted, static_cast<size_t>(count) * sizeof(int64_t));
    }
    for (int64_t i = 1; i < count; ++i) {
        const int64_t value = values[i];
        int64_t j = i;
        for (; j > 0 && values[j - 1] > value; --j) values[j] = values[j - 1];
        values[j] = value;
    }
}

// Sorts uniform numbers of [0, n). Many are first taken apart in place, each put where it belongs while what stood there
// is taken on: the buckets above then fit the cache, and the memory for a second copy of all numbers is saved.
static void sort_uniform(int64_t* values, int64_t count, int64_t n, std::vector<int64_t>& scratch) {
    constexpr int64_t kMostAtOnce = int64_t{1} << 16, kMostParts = 2048;
    if (count <= kMostAtOnce) return sort_into_buckets(values, count, 0, n, scratch);
    int bits = 0;
    while ((n - 1) >> bits >= kMostParts) ++bits;
    const int64_t parts = ((n - 1) >> bits) + 1;
    std::vector<int64_t> next(static_cast<size_t>(parts), 0), ends;
    for (int64_t i = 0; i < count; ++i) ++next[static_cast<size_t>(values[i] >> bits)];
    int64_t sum = 0;
    for (int64_t& here : next) {
        sum += here;
        ends.push_back(sum);
        here = sum - here;
    }
    int64_t begin = 0;
    for (int64_t part = 0; part < parts; ++part) {
        const int64_t end = ends[static_cast<size_t>(part)];
        for (int64_t& at = next[static_cast<size_t>(part)]; at < end; ++at) {
            int64_t value = values[at];
            for (int64_t home = value >> bits; home != part; home = value >> bits)
                std::swap(value, values[next[static_cast<size_t>(home)]++]);
            values[at] = value;
        }
        sort_into_buckets(values + begin, end - begin, part << bits, int64_t{1} << bits, scratch);
        begin = end;
    }
}

// k distinct numbers of [0, n), sorted: the first k distinct ones of the stream, or, for more than half, those that
// such a sample leaves out. Drawing only as many as are missing, again and again, never draws one too many.
static void sample_sorted(int64_t n, int64_t k, uint64_t seed, uint32_t stream, uint64_t step, int64_t* out) {
    if (k > n - k) {
        std::vector<int64_t> left_out(static_cast<size_t>(n - k));
        sample_sorted(n, n - k, seed, stream, step, left_out.data());
        int64_t next = 0;
        size_t at = 0;
        for (int64_t i = 0; i < k; ++next) {
            if (at < left_out.size() && left_out[at] == next) ++at;
            else out[i++] = next;
        }
        return;
    }
    if (k == 0) return;
    WordReader reader(seed, stream, step);
    const Remainder below(n);
    static thread_local std::vector<int64_t> scratch;
    for (int64_t have = 0; have < k;) {
        for (int64_t i = have; i < k; ++i) out[i] = below(reader.next_63_bits());
        if (have == 0) {
            sort_uniform(out, k, n, scratch);
        } else {
            std::sort(out + have, out + k);
            std::inplace_merge(out, out + have, out + k);
        }
        have = std::unique(out, out + k) - out;
    }
}

static int entry_sample_sorted(int64_t n, int64_t k, uint64_t seed, uint32_t stream, uint64_t step, int64_t* out) {
    sample_sorted(n, k, seed, stream, step, out);
    return WB_FINE;
}

}  // namespace wb::WB_ISA
