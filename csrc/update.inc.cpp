// One step of Algorithm 1 up to the deaths, in one pass over the connections:
//
//   theta <- optimiser(theta, gradient)          torch's formulas; Adam's bias correction by the connection's own age
//   theta <- theta - eta alpha + sqrt(2 eta T) nu
//   dead: theta < 0
//
// Work is cut at multiples of kUpdateBlock and at the edges of drifts, never elsewhere, so the bits do not depend on
// the number of threads.
#pragma once

#include "guard.inc.cpp"
#include "random.inc.cpp"

namespace wb::WB_ISA {

constexpr int64_t kUpdateBlock = 256;

template <class T>
struct UpdateArrays {
    T* theta;
    const T* gradient;
    T* moment1;      // SGD: momentum, may be null; Adam: exp_avg
    T* moment2;      // Adam: exp_avg_sq
    T* moment2_max;  // Adam with amsgrad, otherwise null
    const int32_t* born;  // null: all are as old as theta
};

// 1 / (1 - beta1^age) and 1 / sqrt(1 - beta2^age) for young ages. The table grows with the run until both are 1 to the
// last bit; a thread keeps it between calls.
template <class T>
class BiasCorrection {
public:
    // Makes the table good for ages up to `oldest`.
    void prepare(double beta1, double beta2, int64_t oldest) {
        if (beta1 != beta1_ || beta2 != beta2_ || pairs_.empty()) {
            beta1_ = beta1, beta2_ = beta2, power1_ = power2_ = 1.0, converged_ = false;
            pairs_.assign(1, Pair{T(1), T(1)});  // age 0 does not occur
        }
        while (!converged_ && static_cast<int64_t>(pairs_.size()) <= oldest &&
               static_cast<int64_t>(pairs_.size()) < kMostEntries) {
            power1_ *= beta1, power2_ *= beta2;
            pairs_.push_back(Pair{static_cast<T>(1.0 / (1.0 - power1_)), static_cast<T>(1.0 / std::sqrt(1.0 - power2_))});
            converged_ = pairs_.back().first == T(1) && pairs_.back().second == T(1);
        }
    }
    // Ages beyond this all have the same correction.
    int32_t oldest() const {
        return converged_ ? static_cast<int32_t>(pairs_.size()) - 1 : std::numeric_limits<int32_t>::max();
    }
    void at(int32_t age, T& first, T& second) const {
        if (age < static_cast<int32_t>(pairs_.size())) {
            const Pair& pair = pairs_.data()[age];
            first = pair.first, second = pair.second;
        } else {
            first = static_cast<T>(1.0 / (1.0 - std::pow(beta1_, age)));
            second = static_cast<T>(1.0 / std::sqrt(1.0 - std::pow(beta2_, age)));
        }
    }

private:
    struct Pair {
        T first, second;
    };
    static constexpr int64_t kMostEntries = int64_t{1} << 20;
    double beta1_ = 0, beta2_ = 0, power1_ = 1, power2_ = 1;
    bool converged_ = false;
    std::vector<Pair> pairs_;
};

// The corrections of one block of connections. Most are as old as the oldest, so those stay from block to block and
// only the younger ones are put in, and taken out again.
template <class T>
struct BlockCorrection {
    T first[kUpdateBlock], second[kUpdateBlock];
    int32_t filled_age = 0;  // of the first `filled` entries, but for the changed ones
    int64_t filled = 0, changed = 0;
    int16_t changes[kUpdateBlock];

    void fill_same(const BiasCorrection<T>& table, int32_t age, int64_t n) {
        const bool restore = age == filled_age && n <= filled;
        T one, two;
        if (!restore || changed > 0) table.at(age, one, two);
        if (restore) {
            for (int64_t j = 0; j < changed; ++j) first[changes[j]] = one, second[changes[j]] = two;
        } else {
            for (int64_t i = 0; i < n; ++i) first[i] = one, second[i] = two;
            filled_age = age, filled = n;
        }
        changed = 0;
    }
    void fill(const BiasCorrection<T>& table, int64_t clock, const int32_t* born, int64_t n) {
        const int32_t now = static_cast<int32_t>(clock), oldest = table.oldest();
        int32_t ages[kUpdateBlock], most = 1;
        for (int64_t i = 0; i < n; ++i) {
            const int32_t age = now - born[i];
            ages[i] = age < 1 ? 1 : age > oldest ? oldest : age;
            most = ages[i] > most ? ages[i] : most;
        }
        int32_t younger = 0;
        for (int64_t i = 0; i < n; ++i) younger += ages[i] != most;
        if (younger > n / 4) {
            filled = 0;
            for (int64_t i = 0; i < n; ++i) table.at(ages[i], first[i], second[i]);
            return;
        }
        fill_same(table, most, n);
        for (int64_t i = 0; younger > 0; ++i) {
            if (ages[i] == most) continue;
            table.at(ages[i], first[i], second[i]);
            changes[changed++] = static_cast<int16_t>(i);
            --younger;
        }
    }
};

template <class T>
static void sgd_block(const wb_rule& rule, T* __restrict theta, const T* __restrict gradient, T* __restrict momentum,
                      int64_t n) {
    const T lr = static_cast<T>(rule.lr), decay = static_cast<T>(rule.weight_decay);
    const T direction = rule.maximize ? T(-1) : T(1);
    if (momentum == nullptr) {
        for (int64_t i = 0; i < n; ++i) theta[i] -= lr * (direction * gradient[i] + decay * theta[i]);
        return;
    }
    const T keep = rule.fresh ? T(0) : static_cast<T>(rule.momentum);
    const T take = rule.fresh ? T(1) : static_cast<T>(1.0 - rule.dampening);
    // With Nesterov the step is d + mu buffer, otherwise the buffer.
    const T of_d = rule.nesterov ? T(1) : T(0), of_buffer = rule.nesterov ? static_cast<T>(rule.momentum) : T(1);
    for (int64_t i = 0; i < n; ++i) {
        const T d = direction * gradient[i] + decay * theta[i];
        const T buffer = keep * momentum[i] + take * d;
        momentum[i] = buffer;
        theta[i] -= lr * (of_d * d + of_buffer * buffer);
    }
}

template <class T, bool Max>
static void adam_block(const wb_rule& rule, T* __restrict theta, const T* __restrict gradient, T* __restrict moment1,
                       T* __restrict moment2, T* __restrict moment2_max, const T* __restrict first,
                       const T* __restrict second, T newborn, int64_t n) {
    const T lr = static_cast<T>(rule.lr), eps = static_cast<T>(rule.eps), direction = rule.maximize ? T(-1) : T(1);
    const T decay = rule.decoupled ? T(0) : static_cast<T>(rule.weight_decay);
    const T shrink = rule.decoupled ? static_cast<T>(1.0 - rule.lr * rule.weight_decay) : T(1);
    const T take1 = static_cast<T>(1.0 - rule.beta1), beta2 = static_cast<T>(rule.beta2);
    const T take2 = static_cast<T>(1.0 - rule.beta2);
    for (int64_t i = 0; i < n; ++i) {
        const T d = direction * gradient[i] + decay * theta[i];
        const T m = moment1[i] + take1 * (d - moment1[i]);
        // The bias of a newborn's second moment is that of all others, which `second` takes out again.
        const T before = moment2[i] == T(0) ? newborn / (second[i] * second[i]) : moment2[i];
        const T v = beta2 * before + take2 * d * d;
        moment1[i] = m;
        moment2[i] = v;
        T largest = v;
        if constexpr (Max) largest = moment2_max[i] = moment2_max[i] > v ? moment2_max[i] : v;
        theta[i] = shrink * theta[i] - lr * first[i] * m / (std::sqrt(largest) * second[i] + eps);
    }
}

// Noise and shrinkage, then what must be known about the result: whether a sign bit is set, and the largest
// magnitude as an integer, which orders like the number and puts infinity and NaN on top.
template <class T>
struct Walked {
    Bits<T> signs = 0, largest = 0;
};

template <class T, bool Noise, bool Clamp>
static Walked<T> walk_block(T* __restrict theta, T shrink, T noise_std, const float* __restrict noise, int64_t n) {
    Walked<T> result;
    for (int64_t i = 0; i < n; ++i) {
        T value = theta[i] - shrink;
        if constexpr (Noise) value += noise_std * static_cast<T>(noise[i]);
        if constexpr (Clamp) value = value < 0 ? T(0) : value;
        theta[i] = value;
        Bits<T> bits;
        std::memcpy(&bits, &value, sizeof bits);
        const Bits<T> magnitude = bits & std::numeric_limits<Bits<T>>::max();
        result.signs |= bits;
        result.largest = result.largest > magnitude ? result.largest : magnitude;
    }
    return result;
}

// Who died, in order: all are counted, the first ones listed. Where there are more than `most`, the list ends somewhere
// behind the first `most`: half of a large wiring may die in a step, and eight bytes for each would be too much.
struct Dead {
    std::vector<int64_t> indices;
    int64_t count = 0, most = std::numeric_limits<int64_t>::max();

    void clear() {
        indices.clear();
        count = 0;
    }
    void add(const int64_t* first, const int64_t* last) {
        if (count <= most) indices.insert(indices.end(), first, last);
        count += last - first;
    }
    // Whose indices come after all that are here.
    void add(const Dead& later) {
        if (count <= most) indices.insert(indices.end(), later.indices.begin(), later.indices.end());
        count += later.count;
    }
};

// k + the numbers of the bits that are set, in order; eight numbers are written, whatever the bits. Returns what follows
// the last that counts: no branch has to guess how many there are.
WB_INLINE int64_t* list_bits(unsigned bits, int64_t k, int64_t* to) {
#if defined(__AVX512F__)
    typedef Vec<long long, 64> Wides;
    const Wides numbers = (Wides)(splat<int64_t, 64>(k) + Vec<int64_t, 64>{0, 1, 2, 3, 4, 5, 6, 7});
    const Wides chosen = __builtin_ia32_compressdi512_mask(numbers, Wides{}, static_cast<unsigned char>(bits));
    store<int64_t, 64>(to, (Vec<int64_t, 64>)chosen);
    return to + __builtin_popcount(bits);
#elif defined(__AVX2__)
    const Vec<int64_t, 32> base = splat<int64_t, 32>(k);
    Vec<int32_t, 16> halves[2];
    const Ints8 numbers = bytes_as_ints(kLanes.set[bits]);
    std::memcpy(halves, &numbers, sizeof halves);
    for (int i = 0; i < 2; ++i)
        store<int64_t, 32>(to + 4 * i, base + __builtin_convertvector(halves[i], Vec<int64_t, 32>));
    return to + __builtin_popcount(bits);
#else
    // The first is written whether it exists or not, and counted if it does; only a second one is a surprise.
    do {
        *to = k + __builtin_ctz(bits | 1u << 8);
        to += bits != 0;
        bits &= bits - 1;
    } while (bits != 0);
    return to;
#endif
}

// Indices of the negative ones of at most a block, added to `dead`.
template <class T>
static void find_dead(const T* theta, int64_t from, int64_t to, Dead& dead) {
    int64_t found[kUpdateBlock + 8], *next = found, k = from;
    for (; k + 8 <= to; k += 8) next = list_bits(negative_bits(theta + k), k, next);
    for (; k < to; ++k) {
        *next = k;
        next += theta[k] < 0;
    }
    dead.add(found, next);
}

// What a range of connections has of its own beside the rule.
struct Drift {
    double shrink = 0, noise_std = 0, second_moment = 0;  // as in wb_drift_and_noise
    bool lazy = false;
};

// Whether any number is not 0.
template <class T>
static bool any_gradient(const T* gradient, int64_t n) {
    int any = 0;
    for (int64_t i = 0; i < n; ++i) any |= gradient[i] != 0;
    return any != 0;
}

// The connections of a block as they were before the step: those without a gradient go back to it.
template <class T>
struct Untouched {
    T values[4][kUpdateBlock];

    static void each(const UpdateArrays<T>& arrays, T* (&found)[4]) {
        T* all[4] = {arrays.theta, arrays.moment1, arrays.moment2, arrays.moment2_max};
        for (int i = 0; i < 4; ++i) found[i] = all[i];
    }
    void keep(const UpdateArrays<T>& arrays, int64_t k, int64_t n) {
        T* from[4];
        each(arrays, from);
        for (int a = 0; a < 4; ++a)
            if (from[a]) std::copy_n(from[a] + k, n, values[a]);
    }
    void put_back(const UpdateArrays<T>& arrays, int64_t k, int64_t n) const {
        T* to[4];
        each(arrays, to);
        for (int a = 0; a < 4; ++a)
            if (to[a])
                for (int64_t i = 0; i < n; ++i) to[a][k + i] = arrays.gradient[k + i] != 0 ? to[a][k + i] : values[a][i];
    }
};

// Connections [from, to) with one drift. True if a theta is not finite.
template <class T>
static bool update_range(const wb_rule& rule, const UpdateArrays<T>& arrays, const BiasCorrection<T>& table, int64_t from,
                         int64_t to, const Drift& drift, Dead& dead) {
    const T infinity = std::numeric_limits<T>::infinity();
    Bits<T> infinite;
    std::memcpy(&infinite, &infinity, sizeof infinite);
    BlockCorrection<T> correction;
    Untouched<T> untouched;
    float noise[kUpdateBlock + 32];
    bool not_finite = false;
    const bool noisy = rule.bound && drift.noise_std != 0;
    const T newborn = static_cast<T>(drift.second_moment);
    for (int64_t k = from; k < to;) {
        const int64_t end = std::min((k / kUpdateBlock + 1) * kUpdateBlock, to), n = end - k;
        T* theta = arrays.theta + k;
        if (drift.lazy) {
            if (!any_gradient(arrays.gradient + k, n)) {
                if (rule.bound && any_below_zero(theta, n)) find_dead(arrays.theta, k, end, dead);
                k = end;
                continue;
            }
            untouched.keep(arrays, k, n);
        }
        if (rule.kind == WB_SGD) {
            sgd_block<T>(rule, theta, arrays.gradient + k, arrays.moment1 ? arrays.moment1 + k : nullptr, n);
        } else if (rule.kind == WB_ADAM) {
            if (arrays.born) correction.fill(table, rule.clock, arrays.born + k, n);
            else correction.fill_same(table, static_cast<int32_t>(std::min<int64_t>(rule.clock, table.oldest())), n);
            if (arrays.moment2_max)
                adam_block<T, true>(rule, theta, arrays.gradient + k, arrays.moment1 + k, arrays.moment2 + k,
                                    arrays.moment2_max + k, correction.first, correction.second, newborn, n);
            else
                adam_block<T, false>(rule, theta, arrays.gradient + k, arrays.moment1 + k, arrays.moment2 + k, nullptr,
                                     correction.first, correction.second, newborn, n);
        }
        if (noisy)
            normal_groups(rule.seed, rule.stream, static_cast<uint64_t>(rule.step), static_cast<uint64_t>(k / 32),
                          (end + 31) / 32 - k / 32, noise);
        const T less = rule.bound ? static_cast<T>(drift.shrink) : T(0), width = static_cast<T>(drift.noise_std);
        const float* nu = noise + k % 32;
        const bool clamp = rule.bound && rule.clamp;
        const Walked<T> walked = noisy ? (clamp ? walk_block<T, true, true>(theta, less, width, nu, n)
                                                : walk_block<T, true, false>(theta, less, width, nu, n))
                                       : (clamp ? walk_block<T, false, true>(theta, less, width, nu, n)
                                                : walk_block<T, false, false>(theta, less, width, nu, n));
        not_finite |= walked.largest >= infinite;
        if (drift.lazy) untouched.put_back(arrays, k, n);
        if (rule.bound && (walked.signs < 0 || drift.lazy)) find_dead(arrays.theta, k, end, dead);
        k = end;
    }
    return not_finite;
}

// Connections [from, to) with all their drifts; what lies between two drifts only follows the optimiser.
template <class T>
static bool update_chunk(const wb_rule& rule, const UpdateArrays<T>& arrays, const BiasCorrection<T>& table, int64_t from,
                         int64_t to, const wb_drift_and_noise* drifts, int64_t n_drifts, Dead& dead) {
    bool not_finite = false;
    int64_t at = from;
    for (int64_t i = 0; i < n_drifts && at < to; ++i) {
        const int64_t first = std::min(std::max(drifts[i].first, at), to), last = std::min(drifts[i].last, to);
        if (last <= first) continue;
        if (at < first) not_finite |= update_range<T>(rule, arrays, table, at, first, Drift{}, dead);
        at = last;
        if (drifts[i].frozen) continue;
        wb_rule here = rule;
        here.lr *= drifts[i].lr_factor;
        here.weight_decay *= drifts[i].decay_factor;
        const Drift drift{drifts[i].shrink, drifts[i].noise_std, drifts[i].second_moment, drifts[i].lazy != 0};
        not_finite |= update_range<T>(here, arrays, table, first, last, drift, dead);
    }
    if (at < to) not_finite |= update_range<T>(rule, arrays, table, at, to, Drift{}, dead);
    return not_finite;
}

template <class T>
static BiasCorrection<T>& bias_correction(const wb_rule& rule) {
    static thread_local BiasCorrection<T> table;
    if (rule.kind == WB_ADAM) table.prepare(rule.beta1, rule.beta2, rule.clock);
    return table;
}

// All n connections; `dead` receives those that died. True if a theta is not finite.
template <class T>
static bool update_all(const wb_rule& rule, const UpdateArrays<T>& arrays, int64_t n, const wb_drift_and_noise* drifts,
                       int64_t n_drifts, int threads, Dead& dead) {
    const BiasCorrection<T>& table = bias_correction<T>(rule);
    constexpr int64_t kSmallestChunk = 64 * kUpdateBlock;
    const int64_t wanted = threads > 1 ? 2 * static_cast<int64_t>(threads) : 1;
    const int64_t blocks = (n + kUpdateBlock - 1) / kUpdateBlock;
    const int64_t chunk = std::max(kSmallestChunk, (blocks + wanted - 1) / wanted * kUpdateBlock);
    const int64_t chunks = (n + chunk - 1) / chunk;
    dead.clear();
    if (chunks == 1) return update_chunk<T>(rule, arrays, table, 0, n, drifts, n_drifts, dead);
    std::vector<Dead> found(static_cast<size_t>(chunks), Dead{{}, 0, dead.most});
    std::atomic<bool> bad{false};
    parallel_for(threads, chunks, [&](int64_t i) {
        const int64_t from = i * chunk, to = std::min(from + chunk, n);
        if (update_chunk<T>(rule, arrays, table, from, to, drifts, n_drifts, found[static_cast<size_t>(i)])) bad = true;
    });
    for (const Dead& part : found) dead.add(part);
    return bad;
}

// A copy of all that a step overwrites.
template <class T>
struct BeforeStep {
    std::vector<T> theta, moment1, moment2, moment2_max;

    BeforeStep(const UpdateArrays<T>& arrays, int64_t n)
        : theta(copy(arrays.theta, n)), moment1(copy(arrays.moment1, n)), moment2(copy(arrays.moment2, n)),
          moment2_max(copy(arrays.moment2_max, n)) {}
    void put_back(const UpdateArrays<T>& arrays) const {
        std::copy(theta.begin(), theta.end(), arrays.theta);
        std::copy(moment1.begin(), moment1.end(), arrays.moment1);
        std::copy(moment2.begin(), moment2.end(), arrays.moment2);
        std::copy(moment2_max.begin(), moment2_max.end(), arrays.moment2_max);
    }

private:
    static std::vector<T> copy(const T* from, int64_t n) { return from ? std::vector<T>(from, from + n) : std::vector<T>(); }
};

// The same, but a step that cannot be taken leaves everything as it was: what is not finite is found before anything is
// written, and a gradient so large that the step may overflow makes a copy first. True if it cannot be taken.
template <class T>
static bool try_update(const wb_rule& rule, const UpdateArrays<T>& arrays, int64_t n, const wb_drift_and_noise* drifts,
                       int64_t n_drifts, int threads, Dead& dead) {
    Bits<T> largest = largest_magnitude<T>(arrays.theta, n);
    if (rule.kind != WB_NONE) largest = std::max(largest, largest_magnitude<T>(arrays.gradient, n));
    if (largest >= magnitude_of(std::numeric_limits<T>::infinity())) return true;  // or NaN, which is above
    constexpr double kHarmless = 1e15;
    const bool harmless = largest <= magnitude_of(static_cast<T>(kHarmless)) && std::fabs(rule.lr) <= kHarmless &&
                          std::fabs(rule.weight_decay) <= kHarmless;
    if (harmless || rule.kind == WB_NONE) return update_all<T>(rule, arrays, n, drifts, n_drifts, threads, dead);
    const BeforeStep<T> before(arrays, n);
    if (!update_all<T>(rule, arrays, n, drifts, n_drifts, threads, dead)) return false;
    before.put_back(arrays);
    return true;
}

template <class T>
static int64_t entry_update(const wb_rule* rule, int64_t n, T* theta, const T* gradient, T* moment1, T* moment2, T* moment2_max,
                      const int32_t* born, const wb_drift_and_noise* drifts, int64_t n_drifts, int64_t* dead, int64_t capacity,
                      int threads) {
    static thread_local Dead found;
    found.most = capacity;
    const UpdateArrays<T> arrays{theta, gradient, moment1, moment2, moment2_max, born};
    if (try_update<T>(*rule, arrays, n, drifts, n_drifts, threads, found)) return WB_NOT_FINITE;
    std::copy_n(found.indices.begin(), std::min(found.count, capacity), dead);
    give_back_if_large(found.indices);
    return found.count;
}

template <class T>
static int64_t entry_dead(const T* theta, int64_t n, int64_t* dead, int64_t capacity) {
    int64_t count = 0;
    for (int64_t k = 0; k < n; ++k) {
        if (!(theta[k] < 0)) continue;
        if (count < capacity) dead[count] = k;
        ++count;
    }
    return count;
}

// The optimiser's step number `step` on a dense parameter of n elements. True if one is not finite afterwards.
static bool update_parameter(wb_rule rule, const wb_parameter& parameter, const float* gradient, int64_t n, int64_t step) {
    rule.bound = 0;
    rule.clock = step;
    rule.weight_decay = parameter.weight_decay;
    const UpdateArrays<float> arrays{parameter.data, gradient, parameter.moment1, parameter.moment2,
                                     parameter.moment2_max, nullptr};
    Dead none;  // nothing dies
    return update_range<float>(rule, arrays, bias_correction<float>(rule), 0, n, Drift{}, none);
}

template <class T>
static int entry_all_finite(const T* values, int64_t n) {
    return largest_magnitude(values, n) < magnitude_of(std::numeric_limits<T>::infinity());
}

}  // namespace wb::WB_ISA
