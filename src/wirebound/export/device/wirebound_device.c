/* wirebound_device: DEEP R inside caller-owned memory. The header says how to use it. MIT licence, see LICENSE.
 *
 * Connections are sorted by input neuron, then output neuron, through all layers, as in wirebound's wirings; random
 * numbers are its Philox streams. A step needs no memory beside the connections and one number for each neuron: deltas
 * take the place of activations, each theta is moved as soon as its gradient is known, and while connections are
 * replaced the places of the dead hold what is known of the newborns.
 */
#include "wirebound_device.h"

#include <string.h>
#if !WB_FIXED
#include <math.h>
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF /* the same bits on every chip; gcc does so with -std=c99 */
#endif

#define NEGATIVE 0x8000u
#define ROW_BITS 0x7fffu
#define LARGEST_SIGNED 0x7fffffff

enum { POSITIONS = 0, WEIGHTS = 1, NOISE = 2, NEWBORN = 3, NEWBORN_LAYER = 4, SIGN = 5, ROUNDING = 7 }; /* streams */

/* ---- layers ------------------------------------------------------------------------------------------------------ */

static uint32_t inputs_of(const wb_config *config, uint32_t layer) {
    return layer == 0u ? config->inputs : config->layer[layer - 1u].outputs;
}

static uint32_t first_column_of(const wb_config *config, uint32_t layer) {
    uint32_t column = 0u, i;
    for (i = 0u; i < layer; i++) column += inputs_of(config, i);
    return column;
}

static uint32_t places_of(const wb_config *config, uint32_t layer) {
    return inputs_of(config, layer) * config->layer[layer].outputs;
}

static int is_frozen(const wb_context *ctx, uint32_t layer) { return (int)(ctx->frozen >> layer & 1u); }

/* ---- random numbers: Philox4x32-10 as a function of seed, stream, step and block ---------------------------------- */

typedef struct {
    uint32_t word[4];
} block;

static block philox(uint64_t seed, uint32_t stream, uint32_t step, uint32_t number) {
    block b;
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32), round;
    b.word[0] = number;
    b.word[1] = step;
    b.word[2] = 0u;
    b.word[3] = stream;
    for (round = 0u; round < 10u; round++) {
        const uint64_t first = (uint64_t)b.word[0] * 0xD2511F53u, second = (uint64_t)b.word[2] * 0xCD9E8D57u;
        b.word[0] = (uint32_t)(second >> 32) ^ b.word[1] ^ key0;
        b.word[1] = (uint32_t)second;
        b.word[2] = (uint32_t)(first >> 32) ^ b.word[3] ^ key1;
        b.word[3] = (uint32_t)first;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return b;
}

static uint32_t stream_of(uint32_t purpose, uint32_t wiring) { return purpose | wiring << 8; }
static uint32_t stream_in(uint32_t purpose, uint32_t wiring, uint32_t layer) {
    return stream_of(purpose, wiring) | (layer + 1u) << 20;
}

/* Number i of a stream of integers in [0, n): 63 random bits modulo n. */
static uint32_t integer_below(uint32_t n, uint64_t seed, uint32_t stream, uint32_t step, uint32_t i) {
    const block b = philox(seed, stream, step, i / 2u);
    const uint32_t at = (i & 1u) * 2u;
    return (uint32_t)((((uint64_t)b.word[at + 1u] << 32 | b.word[at]) >> 1) % n);
}

/* The constant sign of a position, as the highest bit of its row. */
static uint32_t sign_of(uint64_t seed, uint32_t wiring, uint32_t position) {
    /* The counter is the position in 64 bits and two words more: what is the step elsewhere is its upper half. */
    return (philox(seed, stream_of(SIGN, wiring), 0u, position).word[0] & 1u) != 0u ? NEGATIVE : 0u;
}

#if !WB_FIXED
static uint32_t bits_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* -2 ln(x / 2^24) for x in [1/2, 2^24]. */
static float minus_two_log(float x) {
    const uint32_t bits = bits_of(x) - (24u << 23);
    const int32_t over = (int32_t)(bits - 0x3f3504f3u);
    const int32_t exponent = over < 0 ? -(int32_t)(((uint32_t)-over + 0x7fffffu) >> 23) : over >> 23;
    const float f = float_of(bits - ((uint32_t)exponent << 23)) - 1.0f, e = (float)exponent;
    const float f2 = f * f, f4 = f2 * f2;
    const float p01 = f * 4.9999987986e-1f - 6.6666662348e-1f;
    const float p23 = f * 3.3336115330e-1f - 4.0001429530e-1f;
    const float p45 = f * 2.4840281692e-1f - 2.8498645574e-1f;
    const float p67 = f * 2.3029220620e-1f - 2.3353997480e-1f;
    const float p = (p01 + p23 * f2) + f4 * ((p45 + p67 * f2) - f4 * 1.40753672584e-1f);
    return (p * (f2 * f) + (e * 4.24388880e-4f + f2)) + (e * -1.38671875f - 2.0f * f);
}

/* Box and Muller: two normals from two words. */
static void normal_pair(uint32_t first, uint32_t second, float *to0, float *to1) {
    const float radius = sqrtf(minus_two_log((float)(first >> 8) + 0.5f));
    const uint32_t turned = (second & 0xffffff00u) + (1u << 29);
    const int32_t rest = (int32_t)(turned & 0x3fffffffu) - (int32_t)(1u << 29);
    const float angle = (float)rest * 1.46291807926715968e-9f, a2 = angle * angle;
    const int swap = (turned & (1u << 30)) != 0u;
    float s = a2 * -1.9515295891e-4f + 8.3321608736e-3f;
    float c = a2 * 2.443315711809948e-5f - 1.388731625493765e-3f;
    s = s * a2 - 1.6666654611e-1f;
    s = s * (a2 * angle) + angle;
    c = c * a2 + 4.166664568298827e-2f;
    c = c * (a2 * a2) + (1.0f - 0.5f * a2);
    *to0 = radius * float_of(bits_of(swap ? s : c) ^ ((turned + (1u << 30)) & (1u << 31)));
    *to1 = radius * float_of(bits_of(swap ? c : s) ^ (turned & (1u << 31)));
}

/* Normals 32 group .. 32 group + 31 of a stream. */
static void normal_group(uint64_t seed, uint32_t stream, uint32_t step, uint32_t group, float *out) {
    uint32_t lane;
    for (lane = 0u; lane < 8u; lane++) {
        const block b = philox(seed, stream, step, 8u * group + lane);
        normal_pair(b.word[0], b.word[1], out + lane, out + 8u + lane);
        normal_pair(b.word[2], b.word[3], out + 16u + lane, out + 24u + lane);
    }
}

#else
/* xorshift32 (Marsaglia 2003): for rounding, where a number is needed for each connection in each step. */
static uint32_t random_after(uint32_t state) {
    state ^= state << 13;
    state ^= state >> 17;
    return state ^ state << 5;
}

static uint32_t next_random(wb_context *ctx) {
    ctx->random = random_after(ctx->random);
    return ctx->random;
}

/* About normal, in units of 1 / 148: the sum of the four bytes of a word. */
static int32_t rough_normal(uint32_t word) {
    return (int32_t)((word & 255u) + (word >> 8 & 255u) + (word >> 16 & 255u) + (word >> 24)) - 510;
}

static uint32_t magnitude(int32_t value) { return value < 0 ? 0u - (uint32_t)value : (uint32_t)value; }

static int32_t with_sign(uint32_t size, int negative) { return negative != 0 ? -(int32_t)size : (int32_t)size; }

static int32_t at_most(int64_t value, int32_t most) {
    return value > most ? most : value < -most ? -most : (int32_t)value;
}

/* value 2^-by, rounded towards 0, and within 31 bits. */
static int32_t scaled(int32_t value, int32_t by) {
    const uint32_t size = magnitude(value);
    if (by >= 0) return with_sign(by > 31 ? 0u : size >> by, value < 0);
    return at_most((int64_t)with_sign(size, value < 0) * ((int64_t)1 << (by < -31 ? 31 : -by)), LARGEST_SIGNED);
}

#define LARGEST_MOVE (1u << 29) /* so that a gradient, the pull and the noise fit into 32 bits together */

/* a b 2^-by, but no more than the largest move. */
static uint32_t product(uint32_t a, uint32_t b, uint32_t by) {
    const uint64_t result = (uint64_t)a * b >> by;
    return result > LARGEST_MOVE ? LARGEST_MOVE : (uint32_t)result;
}

/* The smallest shift after which `count` numbers of this size add up to less than 2^31. */
static uint32_t shift_for(uint32_t largest, uint32_t count) {
    uint32_t shift = 0u;
    while ((uint64_t)(largest >> shift) * count >= 0x80000000u) shift++;
    return shift;
}
#endif

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int rate_is_good(wb_rate rate) {
#if WB_FIXED
    (void)rate;
    return 1;
#else
    return rate >= 0.0f && rate <= 3.0e38f;
#endif
}

wb_status wb_check_config(const wb_config *config) {
    uint32_t i, columns = 0u;
    uint64_t places = 0u, connections = 0u;
    if (config == NULL || config->layer == NULL) return WB_NULL_POINTER;
    if (config->inputs == 0u || config->layers == 0u || config->layers > WB_MOST_LAYERS) return WB_BAD_SIZES;
    for (i = 0u; i < config->layers; i++) {
        const wb_layer *layer = &config->layer[i];
        const uint64_t here = (uint64_t)inputs_of(config, i) * layer->outputs;
        if (layer->outputs == 0u || layer->outputs > ROW_BITS) return WB_BAD_SIZES;
        if (layer->connections > here) return WB_BAD_BUDGET;
        if (!rate_is_good(layer->scale)) return WB_BAD_RATE;
        columns += inputs_of(config, i);
        places += here;
        connections += layer->connections;
    }
    if (columns > WB_MOST_CONNECTIONS || places > 0xffffffffu) return WB_BAD_SIZES;
    if (connections == 0u || connections > WB_MOST_CONNECTIONS) return WB_BAD_BUDGET;
    if (config->loss > WB_MEAN_SQUARE || config->scope > WB_PER_LAYER || config->newborns > WB_UNIFORM ||
        config->rewire_every == 0u || config->bias > 1u || config->has_momentum > 1u)
        return WB_BAD_SETTING;
    if (!rate_is_good(config->lr) || !rate_is_good(config->l1) || !rate_is_good(config->noise) ||
        !rate_is_good(config->momentum) || !rate_is_good(config->input_scale))
        return WB_BAD_RATE;
#if !WB_FIXED
    if (config->momentum >= 1.0f) return WB_BAD_RATE;
#endif
    return WB_OK;
}

/* Bytes of the list that a sample of more than half of the places needs, at most: a bit for each place. */
static uint32_t bytes_of_marks(const wb_config *config, uint32_t connections) {
    uint32_t i, most = 0u, all = 0u;
    for (i = 0u; i <= config->layers; i++) {
        uint32_t places = all;
        if (i < config->layers) {
            places = places_of(config, i);
            all += places;
        }
        if (places / 3u >= connections) continue; /* never that full */
        if (places > 2u * connections) places = 2u * connections;
        if (places > most) most = places;
    }
    return (most + 31u) / 32u * 4u;
}

/* Sizes, and where each array stands; the bytes that all of them take. */
static size_t arrange(wb_context *ctx, uint8_t *memory, const wb_config *config) {
    size_t at = 0u;
    uint32_t i, list;
    ctx->connections = 0u;
    ctx->columns = 0u;
    ctx->neurons = 0u;
    for (i = 0u; i < config->layers; i++) {
        ctx->connections += config->layer[i].connections;
        ctx->columns += inputs_of(config, i);
        ctx->neurons += config->layer[i].outputs;
    }
    list = bytes_of_marks(config, ctx->connections);
    if (list < ctx->neurons * sizeof(wb_number)) list = (uint32_t)(ctx->neurons * sizeof(wb_number));
    ctx->room = list / 4u;
    /* Numbers of four bytes first; what a state holds together, and the activations at the end. */
#define PLACE(pointer, type, count, wanted)                                   \
    do {                                                                      \
        ctx->pointer = (wanted) ? (type *)(void *)(memory + at) : NULL;       \
        if (wanted) at += (size_t)(count) * sizeof(type);                     \
    } while (0)
    PLACE(activation, wb_number, list / sizeof(wb_number), 1);
    PLACE(bias, wb_number, ctx->neurons, config->bias);
    PLACE(bias_buffer, wb_number, ctx->neurons, config->bias && config->has_momentum);
    PLACE(theta, wb_theta, ctx->connections, 1);
    PLACE(buffer, wb_buffer, ctx->connections, config->has_momentum);
    PLACE(start, uint16_t, ctx->columns + 1u, 1);
    PLACE(row, uint16_t, ctx->connections, 1);
#undef PLACE
    return at;
}

size_t wb_memory_needed(const wb_config *config) {
    wb_context ctx;
    if (wb_check_config(config) != WB_OK) return 0u;
    return arrange(&ctx, NULL, config);
}

/* ---- rewiring ---------------------------------------------------------------------------------------------------- */

/* Some layers that share a budget: all of them, or one. */
typedef struct {
    uint32_t index, first, last; /* number, and layers [first, last) */
} wiring;

static uint32_t wirings_of(const wb_config *config) { return config->scope == WB_PER_LAYER ? config->layers : 1u; }

static wiring wiring_at(const wb_config *config, uint32_t index) {
    wiring w = {0u, 0u, 0u};
    w.index = index;
    w.first = config->scope == WB_PER_LAYER ? index : 0u;
    w.last = config->scope == WB_PER_LAYER ? index + 1u : config->layers;
    return w;
}

/* Element by element: the memmove of small C libraries goes byte by byte. */
static void move_connections(wb_context *ctx, uint32_t to, uint32_t from, uint32_t count) {
    wb_theta *theta = ctx->theta;
    uint16_t *row = ctx->row;
    uint32_t i;
    if (to == from) return;
    if (ctx->buffer != NULL) memmove(ctx->buffer + to, ctx->buffer + from, count * sizeof *ctx->buffer);
    if (to < from) {
        for (i = 0u; i < count; i++) {
            theta[to + i] = theta[from + i];
            row[to + i] = row[from + i];
        }
    } else {
        for (i = count; i-- > 0u;) {
            theta[to + i] = theta[from + i];
            row[to + i] = row[from + i];
        }
    }
}

static void set_connection(wb_context *ctx, uint32_t k, uint32_t packed_row, wb_theta theta) {
    ctx->row[k] = (uint16_t)packed_row;
    ctx->theta[k] = theta;
    if (ctx->buffer != NULL) ctx->buffer[k] = (wb_buffer)0;
}

static void swap_connections(wb_context *ctx, uint32_t a, uint32_t b) {
    const wb_theta theta = ctx->theta[a];
    const uint16_t row = ctx->row[a];
    ctx->theta[a] = ctx->theta[b];
    ctx->row[a] = ctx->row[b];
    ctx->theta[b] = theta;
    ctx->row[b] = row;
    if (ctx->buffer != NULL) {
        const wb_buffer buffer = ctx->buffer[a];
        ctx->buffer[a] = ctx->buffer[b];
        ctx->buffer[b] = buffer;
    }
}

static void reverse_connections(wb_context *ctx, uint32_t from, uint32_t to) {
    while (from + 1u < to) {
        to--;
        swap_connections(ctx, from, to);
        from++;
    }
}

/* A free place holds 32 bits: at first the rank of a newborn, then the connection before which it is born. */
static void put_word(wb_context *ctx, uint32_t k, uint32_t word) {
#if WB_FIXED
    ctx->theta[k] = (uint16_t)(word >> 16);
    ctx->row[k] = (uint16_t)word;
#else
    memcpy(&ctx->theta[k], &word, sizeof word);
#endif
}

static uint32_t get_word(const wb_context *ctx, uint32_t k) {
#if WB_FIXED
    return (uint32_t)ctx->theta[k] << 16 | ctx->row[k];
#else
    uint32_t word;
    memcpy(&word, &ctx->theta[k], sizeof word);
    return word;
#endif
}

static void sort_words(wb_context *ctx, uint32_t from, uint32_t count) {
    uint32_t gap = 1u, i;
    while (gap < count / 3u) gap = 3u * gap + 1u;
    for (; gap > 0u; gap /= 3u) {
        for (i = gap; i < count; i++) {
            const uint32_t word = get_word(ctx, from + i);
            uint32_t j = i;
            while (j >= gap && get_word(ctx, from + j - gap) > word) {
                put_word(ctx, from + j, get_word(ctx, from + j - gap));
                j -= gap;
            }
            put_word(ctx, from + j, word);
        }
    }
}

/* The numbers of [0, n) that a sample of n - count leaves out, by marks in the memory of the activations. */
static void sample_most(wb_context *ctx, uint32_t at, uint32_t count, uint32_t n, uint32_t stream, uint32_t step) {
    uint32_t *marks = (uint32_t *)(void *)ctx->activation;
    uint32_t left = n - count, i = 0u, number;
    memset(marks, 0, (n + 31u) / 32u * 4u);
    while (left > 0u) {
        number = integer_below(n, ctx->config->seed, stream, step, i);
        i++;
        if ((marks[number / 32u] >> (number % 32u) & 1u) == 0u) {
            marks[number / 32u] |= 1u << (number % 32u);
            left--;
        }
    }
    for (number = 0u; number < n; number++) {
        if ((marks[number / 32u] >> (number % 32u) & 1u) == 0u) {
            put_word(ctx, at, number);
            at++;
        }
    }
}

/* `count` distinct numbers of [0, n), sorted, in the places from `at` on: the first distinct ones of a stream. */
static void sample(wb_context *ctx, uint32_t at, uint32_t count, uint32_t n, uint32_t stream, uint32_t step) {
    uint32_t have = 0u, drawn = 0u, i;
    if (count > n - count) {
        sample_most(ctx, at, count, n, stream, step);
        return;
    }
    while (have < count) {
        for (i = have; i < count; i++) {
            put_word(ctx, at + i, integer_below(n, ctx->config->seed, stream, step, drawn));
            drawn++;
        }
        sort_words(ctx, at, count);
        have = 1u;
        for (i = 1u; i < count; i++) {
            const uint32_t word = get_word(ctx, at + i);
            if (word != get_word(ctx, at + have - 1u)) {
                put_word(ctx, at + have, word);
                have++;
            }
        }
    }
}

static int is_dead(wb_theta theta) {
#if WB_FIXED
    return theta == 0xffffu;
#else
    return (bits_of(theta) >> 31) != 0u;
#endif
}

/* The dead leave: survivors close up, `start` counts them alone. Returns how many died. */
static uint32_t drop_dead(wb_context *ctx, uint32_t first_column, uint32_t last_column) {
    const uint32_t begin = ctx->start[first_column], end = ctx->start[last_column];
    uint32_t k, column = first_column, died = 0u, segment = begin;
    for (k = begin; k < end; k++) {
        if (!is_dead(ctx->theta[k])) continue;
        move_connections(ctx, segment - died, segment, k - segment);
        segment = k + 1u;
        while (ctx->start[column + 1u] <= k) {
            column++;
            ctx->start[column] = (uint16_t)(ctx->start[column] - died);
        }
        died++;
    }
    if (died > 0u) {
        move_connections(ctx, segment - died, segment, end - segment);
        for (column++; column <= last_column; column++) ctx->start[column] = (uint16_t)(ctx->start[column] - died);
    }
    return died;
}

/* The layer of each of `count` newborns by the layers' initial shares; a full layer passes its excess on. */
static void share_out(const wb_context *ctx, wiring w, uint32_t count, const uint32_t *room, uint32_t *born) {
    const uint32_t stream = stream_of(NEWBORN_LAYER, w.index);
    uint32_t used = 0u, i;
    block b = {{0u, 0u, 0u, 0u}};
    while (count > 0u) {
        uint32_t sum = 0u, drawn[WB_MOST_LAYERS], shares[WB_MOST_LAYERS], left = 0u;
        for (i = w.first; i < w.last; i++) {
            drawn[i] = 0u;
            shares[i] = born[i] < room[i] ? ctx->config->layer[i].connections : 0u;
            sum += shares[i];
        }
        if (sum == 0u) { /* only layers without a share have room left */
            for (i = w.first; i < w.last; i++) {
                shares[i] = born[i] < room[i] ? 1u : 0u;
                sum += shares[i];
            }
        }
        for (; count > 0u; count--) {
            uint32_t at, edge = 0u;
            if (used % 4u == 0u) b = philox(ctx->config->seed, stream, ctx->step, used / 4u);
            at = (uint32_t)((uint64_t)b.word[used % 4u] * sum >> 32);
            used++;
            for (i = w.first; i + 1u < w.last; i++) {
                edge += shares[i];
                if (at < edge) break;
            }
            drawn[i]++;
        }
        for (i = w.first; i < w.last; i++) {
            const uint32_t free = room[i] - born[i], taken = drawn[i] < free ? drawn[i] : free;
            born[i] += taken;
            left += drawn[i] - taken;
        }
        count = left;
    }
}

/* Ranks of the newborns among the dormant positions of each layer, sorted, in the places from `at` on. */
static void draw_ranks(wb_context *ctx, wiring w, uint32_t at, uint32_t count, uint32_t *born) {
    uint32_t room[WB_MOST_LAYERS], dormant = 0u, i, column = first_column_of(ctx->config, w.first);
    for (i = w.first; i < w.last; i++) {
        const uint32_t end = column + inputs_of(ctx->config, i);
        born[i] = 0u;
        room[i] = is_frozen(ctx, i) ? 0u : places_of(ctx->config, i) - (uint32_t)(ctx->start[end] - ctx->start[column]);
        dormant += room[i];
        column = end;
    }
    if (ctx->config->newborns == WB_BY_SHARE && w.last - w.first > 1u) {
        share_out(ctx, w, count, room, born);
        for (i = w.first; i < w.last; i++) {
            if (born[i] > 0u)
                sample(ctx, at, born[i], room[i], stream_in(NEWBORN, w.index, i - w.first), ctx->step);
            at += born[i];
        }
    } else {
        uint32_t before = 0u, t = 0u;
        sample(ctx, at, count, dormant, stream_of(NEWBORN, w.index), ctx->step);
        for (i = w.first; i < w.last; i++) {
            while (t < count && get_word(ctx, at + t) - before < room[i]) {
                put_word(ctx, at + t, get_word(ctx, at + t) - before);
                born[i]++;
                t++;
            }
            before += room[i];
        }
    }
}

/* Each rank becomes an output neuron with its sign, and the connection before which the newborn comes to stand; `start`
 * counts the newborns too. The r-th dormant position of a column is r plus the survivors i with row_i - i <= r. */
static void place_newborns(wb_context *ctx, wiring w, uint32_t at, const uint32_t *born) {
    uint32_t layer, column = first_column_of(ctx->config, w.first), t = 0u, position = 0u;
    uint32_t column_begin = ctx->start[column]; /* among the survivors */
    for (layer = w.first; layer < w.last; layer++) {
        const uint32_t n_out = ctx->config->layer[layer].outputs, first = column;
        const uint32_t end = first + inputs_of(ctx->config, layer), layer_begin = column_begin;
        uint32_t left;
        for (left = born[layer]; left > 0u; left--) {
            uint32_t rank = get_word(ctx, at + t), i, row;
            while (column + 1u < end &&
                   (column + 1u - first) * n_out - (ctx->start[column + 1u] - layer_begin) <= rank) {
                column++;
                column_begin = ctx->start[column];
                ctx->start[column] = (uint16_t)(column_begin + t);
            }
            rank -= (column - first) * n_out - (column_begin - layer_begin);
            i = column_begin;
            while (i < ctx->start[column + 1u] && (ctx->row[i] & ROW_BITS) - (i - column_begin) <= rank) i++;
            row = rank + (i - column_begin);
            put_word(ctx, at + t, i << 16);
            ctx->row[at + t] =
                (uint16_t)(row | sign_of(ctx->config->seed, w.index, position + (column - first) * n_out + row));
            t++;
        }
        while (column < end) {
            column++;
            column_begin = ctx->start[column];
            ctx->start[column] = (uint16_t)(column_begin + t);
        }
        position += n_out * (end - first);
    }
}

/* The newborns, in the places behind the survivors, go where they belong: as many at a time as the memory of the
 * activations holds, the last ones first. */
static void merge_newborns(wb_context *ctx, uint32_t end, uint32_t count) {
    uint32_t *list = (uint32_t *)(void *)ctx->activation;
    while (count > 0u) {
        const uint32_t chunk = count < ctx->room ? count : ctx->room, rest = count - chunk;
        uint32_t i, before, to = end + count, from = end + rest;
        for (i = 0u; i < chunk; i++)
            list[i] = (get_word(ctx, end + rest + i) & 0xffff0000u) | ctx->row[end + rest + i];
        before = list[0] >> 16;
        if (rest > 0u) { /* the rest and the survivors behind it change places */
            reverse_connections(ctx, before, end);
            reverse_connections(ctx, end, end + rest);
            reverse_connections(ctx, before, end + rest);
        }
        for (i = chunk; i > 0u; i--) {
            const uint32_t place = (list[i - 1u] >> 16) + rest;
            to -= from - place;
            move_connections(ctx, to, place, from - place);
            from = place;
            to--;
            set_connection(ctx, to, list[i - 1u] & 0xffffu, (wb_theta)0);
        }
        end = before;
        count = rest;
    }
}

static void rewire(wb_context *ctx, wiring w) {
    const uint32_t first = first_column_of(ctx->config, w.first), last = first_column_of(ctx->config, w.last);
    const uint32_t died = drop_dead(ctx, first, last);
    uint32_t born[WB_MOST_LAYERS], end, i;
    if (died == 0u) return;
    end = ctx->start[last];
    draw_ranks(ctx, w, end, died, born);
    place_newborns(ctx, w, end, born);
    merge_newborns(ctx, end, died);
    for (i = w.first; i < w.last; i++) ctx->born[i] = (uint16_t)born[i];
}

/* ---- the start --------------------------------------------------------------------------------------------------- */

static void draw_thetas(wb_context *ctx, uint32_t at, uint32_t count, wb_rate scale, uint32_t stream) {
    uint32_t i;
#if WB_FIXED
    for (i = 0u; i < count; i++) {
        const block b = philox(ctx->config->seed, stream, 0u, i / 4u);
        ctx->theta[at + i] = (uint16_t)(magnitude(rough_normal(b.word[i % 4u])) * (scale >> 16) / (148u << (16 - WB_THETA_BITS)));
    }
#else
    float normals[32];
    for (i = 0u; i < count; i++) {
        if (i % 32u == 0u) normal_group(ctx->config->seed, stream, 0u, i / 32u, normals);
        ctx->theta[at + i] = fabsf(normals[i % 32u]) * scale;
    }
#endif
}

wb_status wb_init(wb_context *ctx, void *memory, size_t size, const wb_config *config) {
    const wb_status status = wb_check_config(config);
    uint32_t i, layer, at = 0u;
    size_t needed;
    if (ctx == NULL || memory == NULL) return WB_NULL_POINTER;
    if (status != WB_OK) return status;
    if ((uintptr_t)memory % 4u != 0u) return WB_MISALIGNED;
    memset(ctx, 0, sizeof *ctx);
    needed = arrange(ctx, memory, config);
    if (size < needed) return WB_TOO_SMALL;
    memset(memory, 0, needed);
    ctx->config = config;
    for (i = 0u; i < wirings_of(config); i++) {
        const wiring w = wiring_at(config, i);
        const uint32_t begin = at, last = first_column_of(config, w.last);
        uint32_t born[WB_MOST_LAYERS], column;
        for (column = first_column_of(config, w.first); column <= last; column++) ctx->start[column] = (uint16_t)begin;
        for (layer = w.first; layer < w.last; layer++) {
            born[layer] = config->layer[layer].connections;
            sample(ctx, at, born[layer], places_of(config, layer), stream_in(POSITIONS, w.index, layer - w.first), 0u);
            at += born[layer];
        }
        place_newborns(ctx, w, begin, born);
        at = begin;
        for (layer = w.first; layer < w.last; layer++) {
            draw_thetas(ctx, at, born[layer], config->layer[layer].scale, stream_in(WEIGHTS, w.index, layer - w.first));
            at += born[layer];
        }
    }
    for (layer = 0u; layer < config->layers; layer++)
        if (config->layer[layer].frozen != 0u) ctx->frozen |= 1u << layer;
    return wb_set_rate(ctx, config->lr);
}

wb_status wb_set_rates(wb_context *ctx, wb_rate lr, wb_rate shrink, wb_rate noise) {
    if (ctx == NULL) return WB_NULL_POINTER;
    if (!rate_is_good(lr) || !rate_is_good(shrink) || !rate_is_good(noise)) return WB_BAD_RATE;
    ctx->lr = lr;
    ctx->shrink = shrink;
    ctx->noise = noise;
    return WB_OK;
}

wb_status wb_set_rate(wb_context *ctx, wb_rate lr) {
    if (ctx == NULL) return WB_NULL_POINTER;
#if WB_FIXED
    return wb_set_rates(ctx, lr, (wb_rate)((uint64_t)lr * ctx->config->l1 >> 32), (wb_rate)((uint64_t)lr * ctx->config->noise >> 32));
#else
    return wb_set_rates(ctx, lr, lr * ctx->config->l1, lr * ctx->config->noise);
#endif
}

wb_status wb_freeze(wb_context *ctx, uint32_t layer, int frozen) {
    if (ctx == NULL) return WB_NULL_POINTER;
    if (layer >= ctx->config->layers) return WB_BAD_LAYER;
    if (frozen != 0) ctx->frozen |= 1u << layer;
    else ctx->frozen &= ~(1u << layer);
    return WB_OK;
}

uint32_t wb_active(const wb_context *ctx, uint32_t layer) {
    uint32_t column;
    if (ctx == NULL || layer >= ctx->config->layers) return 0u;
    column = first_column_of(ctx->config, layer);
    return (uint32_t)(ctx->start[column + inputs_of(ctx->config, layer)] - ctx->start[column]);
}

wb_status wb_check(const wb_context *ctx) {
    uint32_t layer, column = 0u, left, k;
    if (ctx == NULL) return WB_NULL_POINTER;
    if (ctx->start[0] != 0u || ctx->start[ctx->columns] != ctx->connections) return WB_BROKEN;
    for (layer = 0u; layer < ctx->config->layers; layer++) {
        const uint32_t n_out = ctx->config->layer[layer].outputs;
        const uint32_t first = ctx->start[column];
        for (left = inputs_of(ctx->config, layer); left > 0u; left--, column++) {
            const uint32_t begin = ctx->start[column], end = ctx->start[column + 1u];
            if (end < begin || end > ctx->connections) return WB_BROKEN;
            for (k = begin; k < end; k++) {
                if ((ctx->row[k] & ROW_BITS) >= n_out) return WB_BROKEN;
                if (k > begin && (ctx->row[k] & ROW_BITS) <= (ctx->row[k - 1u] & ROW_BITS)) return WB_BROKEN;
#if WB_FIXED
                if (is_dead(ctx->theta[k])) return WB_BROKEN;
#else
                if (!(ctx->theta[k] >= 0.0f && ctx->theta[k] <= 3.4e38f)) return WB_BROKEN;
#endif
            }
        }
        if (ctx->config->scope == WB_PER_LAYER && ctx->start[column] - first != ctx->config->layer[layer].connections)
            return WB_BROKEN;
    }
    return WB_OK;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

#if WB_FIXED

/* The sums of a layer, in units of 2^(shift - WB_THETA_BITS) times those of its inputs. Each input is a size and a sign. */
static void add_column(const wb_context *ctx, uint32_t column, uint32_t size, int negative, uint32_t shift, int32_t *y) {
    const uint32_t end = ctx->start[column + 1u];
    uint32_t k;
    for (k = ctx->start[column]; k < end; k++) {
        const uint32_t row = ctx->row[k];
        const int32_t term = (int32_t)((ctx->theta[k] * size) >> shift);
        if (((row & NEGATIVE) != 0u) != (negative != 0)) y[row & ROW_BITS] -= term;
        else y[row & ROW_BITS] += term;
    }
}

#define LARGEST_THETA 65534u
#define LARGEST_SIGNAL 32767u

static uint32_t signal_size(int32_t value) {
    const uint32_t size = magnitude(value);
    return size > LARGEST_SIGNAL ? LARGEST_SIGNAL : size;
}

static void forward(wb_context *ctx, const wb_input *x) {
    const wb_config *config = ctx->config;
    const int32_t *from = NULL;
    int32_t *y = ctx->activation;
    uint32_t layer, column = 0u, i;
    for (layer = 0u; layer < config->layers; layer++) {
        const uint32_t n_in = inputs_of(config, layer), n_out = config->layer[layer].outputs;
        const int bytes = WB_INPUT_BYTES && layer == 0u;
        const uint32_t shift = shift_for(LARGEST_THETA * (bytes ? 255u : LARGEST_SIGNAL), n_in);
        memset(y, 0, n_out * sizeof *y);
        for (i = 0u; i < n_in; i++, column++) {
            const int32_t value = layer == 0u ? (int32_t)x[i] : from[i];
            if (value != 0) add_column(ctx, column, signal_size(value), value < 0, shift, y);
        }
        for (i = 0u; i < n_out; i++) { /* to units of 2^-16 */
            int32_t z = bytes ? with_sign(product(magnitude(y[i]), config->input_scale, 16u + WB_THETA_BITS - shift), y[i] < 0)
                              : scaled(y[i], WB_THETA_BITS + 11 - 16 - (int32_t)shift);
            if (ctx->bias != NULL) z = at_most((int64_t)z + scaled(ctx->bias[i + (uint32_t)(y - ctx->activation)], 10), LARGEST_SIGNED / 2);
            if (layer + 1u < config->layers) {
                z = z < 0 ? 0 : scaled(z, 5);
                if (z > (int32_t)LARGEST_SIGNAL) z = (int32_t)LARGEST_SIGNAL;
            }
            y[i] = z;
        }
        from = y;
        y += n_out;
    }
}

#else

static void add_column(const wb_context *ctx, uint32_t column, float value, float *y) {
    const uint32_t end = ctx->start[column + 1u];
    uint32_t k;
    for (k = ctx->start[column]; k < end; k++) {
        const uint32_t row = ctx->row[k];
        const float theta = ctx->theta[k];
        y[row & ROW_BITS] += ((row & NEGATIVE) != 0u ? -theta : theta) * value;
    }
}

static float input_value(const wb_config *config, wb_input x) { return (float)x * config->input_scale; }

static void forward(wb_context *ctx, const wb_input *x) {
    const wb_config *config = ctx->config;
    const float *from = NULL;
    float *y = ctx->activation;
    uint32_t layer, column = 0u, i;
    for (layer = 0u; layer < config->layers; layer++) {
        const uint32_t n_in = inputs_of(config, layer), n_out = config->layer[layer].outputs;
        if (ctx->bias != NULL) memcpy(y, ctx->bias + (y - ctx->activation), n_out * sizeof *y);
        else memset(y, 0, n_out * sizeof *y);
        for (i = 0u; i < n_in; i++, column++) {
            const float value = layer == 0u ? input_value(config, x[i]) : from[i];
            if (value != 0.0f) add_column(ctx, column, value, y);
        }
        if (layer + 1u < config->layers) {
            for (i = 0u; i < n_out; i++)
                if (y[i] < 0.0f) y[i] = 0.0f;
        }
        from = y;
        y += n_out;
    }
}

#endif

static uint32_t outputs_of(const wb_context *ctx) { return ctx->config->layer[ctx->config->layers - 1u].outputs; }
static wb_number *last_outputs(const wb_context *ctx) { return ctx->activation + (ctx->neurons - outputs_of(ctx)); }

const wb_number *wb_run(wb_context *ctx, const wb_input *x) {
    if (ctx == NULL || x == NULL) return NULL;
    forward(ctx, x);
    return last_outputs(ctx);
}

uint32_t wb_predict(wb_context *ctx, const wb_input *x) {
    const wb_number *z = wb_run(ctx, x);
    uint32_t best = 0u, i;
    if (z == NULL) return 0u;
    for (i = 1u; i < outputs_of(ctx); i++)
        if (z[i] > z[best]) best = i;
    return best;
}

/* ---- loss: outputs become the gradient of the loss ----------------------------------------------------------------- */

#if WB_FIXED

#define LARGEST_DELTA 131072 /* 2, in units of 2^-16 */

/* 2^-x, both in units of 2^-16. */
static uint32_t power_of_half(uint32_t x) {
    const uint32_t f = x & 0xffffu;
    uint32_t t;
    if (x >> 16 >= 17u) return 0u;
    t = 448u;
    t = 3487u - (t * f >> 16);
    t = 15691u - (t * f >> 16);
    t = 45420u - (t * f >> 16);
    t = 65536u - (t * f >> 16);
    return t >> (x >> 16);
}

/* ln x for x >= 1, in units of 2^-16: the bits of the logarithm to base 2, by squaring. */
static int32_t logarithm(uint32_t x) {
    uint32_t whole = 0u, result, bit;
    while (x >= 0x20000u) {
        x >>= 1;
        whole++;
    }
    result = whole << 16;
    for (bit = 0x8000u; bit > 0u; bit >>= 1) {
        x = (uint32_t)((uint64_t)x * x >> 16);
        if (x >= 0x20000u) {
            x >>= 1;
            result |= bit;
        }
    }
    return (int32_t)((uint64_t)result * 45426u >> 16);
}

static int32_t cross_entropy(int32_t *z, uint32_t count, uint32_t label) {
    const int32_t own = z[label];
    int32_t top = z[0];
    uint32_t i, sum = 0u;
    for (i = 1u; i < count; i++)
        if (z[i] > top) top = z[i];
    for (i = 0u; i < count; i++) {
        const uint64_t below = (uint64_t)((int64_t)top - z[i]) * 94548u >> 16; /* log2(e) */
        z[i] = (int32_t)power_of_half(below > 0xffffffffu ? 0xffffffffu : (uint32_t)below);
        sum += (uint32_t)z[i];
    }
    for (i = 0u; i < count; i++) z[i] = (int32_t)(((uint32_t)z[i] << 15) / sum << 1);
    z[label] -= 65536;
    return at_most((int64_t)logarithm(sum) + top - own, LARGEST_SIGNED);
}

static int32_t mean_square(int32_t *y, uint32_t count, const int32_t *target, uint32_t label) {
    uint64_t sum = 0u;
    uint32_t i;
    for (i = 0u; i < count; i++) {
        const int32_t wanted = target != NULL ? target[i] : i == label ? 65536 : 0;
        const int32_t difference = at_most((int64_t)y[i] - wanted, LARGEST_SIGNED / 2);
        sum += (uint64_t)((int64_t)difference * difference) >> 16;
        y[i] = at_most((int64_t)difference * 2 / (int64_t)count, LARGEST_DELTA);
    }
    sum /= count;
    return sum > (uint64_t)LARGEST_SIGNED ? LARGEST_SIGNED : (int32_t)sum;
}

#else

/* e^x for x <= 0; 0 below about -87. */
static float exponential(float x) {
    float shifted, n, r, p;
    int32_t exponent, half;
    if (x < -87.3f) x = -87.3f;
    shifted = x * 1.44269504088896341f + 12582912.0f;
    n = shifted - 12582912.0f;
    r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    exponent = (int32_t)(bits_of(shifted) - 0x4b400000u);
    half = (exponent - (exponent & 1)) / 2;
    return p * float_of((uint32_t)(half + 127) << 23) * float_of((uint32_t)(exponent - half + 127) << 23);
}

static float cross_entropy(float *z, uint32_t count, uint32_t label) {
    const float own = z[label];
    float top = z[0], sum = 0.0f, rest = 0.0f, factor;
    uint32_t i;
    for (i = 0u; i < count; i++) {
        if (z[i] > top) top = z[i];
        rest += z[i] * 0.0f; /* not a number if any of them is not finite */
    }
    if (!(rest == 0.0f)) return rest;
    for (i = 0u; i < count; i++) {
        z[i] = exponential(z[i] - top);
        sum += z[i];
    }
    factor = 1.0f / sum;
    for (i = 0u; i < count; i++) z[i] *= factor;
    z[label] -= 1.0f;
    return logf(sum) + top - own;
}

static float mean_square(float *y, uint32_t count, const float *target, uint32_t label) {
    const float scale = 2.0f / (float)count;
    float sum = 0.0f;
    uint32_t i;
    for (i = 0u; i < count; i++) {
        const float wanted = target != NULL ? target[i] : i == label ? 1.0f : 0.0f;
        const float difference = y[i] - wanted;
        y[i] = scale * difference;
        sum += difference * difference;
    }
    return sum / (float)count;
}

#endif

/* ---- backward and update: each theta moves as soon as its gradient is known ----------------------------------------- */

#if WB_FIXED

/* What a step needs to know of a layer. */
typedef struct {
    uint32_t lr;       /* of the product of input and delta */
    uint32_t lr_by;    /* bits by which that product is finer than a move, whose unit is 2^-16 of theta's */
    uint32_t shrink;   /* in units of a move */
    uint32_t noise;    /* 256 times finer, of a normal in units of 1 / 148 */
    int bytes, clamp;
} layer_step;

static int32_t with_momentum(wb_context *ctx, const layer_step *s, uint32_t k, uint32_t gradient, int negative) {
    /* In units of 2^-26, which are those of the buffer and 16 bits to be rounded away. */
    const uint32_t size = s->bytes ? product(gradient, ctx->config->input_scale, 22u) : gradient >> 1;
    int64_t sum = (int64_t)ctx->buffer[k] * (int32_t)(ctx->config->momentum >> 16) + with_sign(size > LARGEST_MOVE ? LARGEST_MOVE : size, negative);
    sum += (int64_t)(next_random(ctx) >> 16);
    sum = (sum + ((int64_t)1 << 40)) / 65536 - ((int64_t)1 << 24);
    ctx->buffer[k] = (int16_t)at_most(sum, 32767);
    return with_sign(product(magnitude(ctx->buffer[k]), ctx->lr, 26u - WB_THETA_BITS), ctx->buffer[k] < 0);
}

/* Moves one theta by the gradient (its size and sign), the pull and the noise. */
static void move_theta(wb_context *ctx, const layer_step *s, uint32_t k, uint32_t gradient, int negative) {
    int32_t move, theta;
    uint32_t random;
    if (ctx->buffer != NULL) move = with_momentum(ctx, s, k, gradient, negative);
    else move = gradient == 0u ? 0 : with_sign(product(gradient, s->lr, s->lr_by), negative);
    move += (int32_t)s->shrink;
    random = next_random(ctx);
    if (s->noise != 0u) {
        const int32_t nu = rough_normal(random);
        move -= with_sign(product(magnitude(nu), s->noise, 8u), nu < 0);
        random = next_random(ctx);
    }
    /* theta - move, rounded up or down by chance in proportion to the rest. */
    theta = (int32_t)ctx->theta[k] + (int32_t)(((random >> 16) - (uint32_t)move + 0x80000000u) >> 16) - 32768;
    if (theta < 0) theta = s->clamp ? 0 : 0xffff;
    else if (theta > (int32_t)LARGEST_THETA) theta = (int32_t)LARGEST_THETA;
    ctx->theta[k] = (uint16_t)theta;
}

/* Moves thetas whose gradient is 0: those of inputs that were 0. */
static void move_idle(wb_context *ctx, const layer_step *s, uint32_t from, uint32_t to) {
    wb_theta *theta = ctx->theta;
    const uint32_t shrink = s->shrink, dead = s->clamp ? 0u : 0xffffu;
    uint32_t k, random = ctx->random;
    if (ctx->buffer != NULL || s->noise != 0u || shrink > 0xffffu) {
        for (k = from; k < to; k++) move_theta(ctx, s, k, 0u, 0);
        return;
    }
    for (k = from; k < to; k++) { /* one unit less, or nothing */
        random = random_after(random);
        if (random >> 16 < shrink) theta[k] = (uint16_t)(theta[k] == 0u ? dead : theta[k] - 1u);
    }
    ctx->random = random;
}

static void move_bias(wb_context *ctx, uint32_t neuron, int32_t delta) {
    int32_t step = delta * 64; /* in units of 2^-22 */
    if (ctx->bias_buffer != NULL) {
        const int64_t kept = (int64_t)ctx->bias_buffer[neuron] * (int64_t)(ctx->config->momentum >> 16) / 65536;
        ctx->bias_buffer[neuron] = step = at_most(kept + step, LARGEST_SIGNED);
    }
    ctx->bias[neuron] = at_most((int64_t)ctx->bias[neuron] - (int64_t)step * ctx->lr / ((int64_t)1 << 28), LARGEST_SIGNED);
}

static layer_step step_of(const wb_context *ctx, uint32_t layer, int clamp) {
    layer_step s;
    s.bytes = WB_INPUT_BYTES && layer == 0u;
    s.lr = s.bytes ? (uint32_t)((uint64_t)ctx->lr * ctx->config->input_scale >> 32) : ctx->lr;
    s.lr_by = s.bytes ? 16u + 32u - WB_THETA_BITS - 16u : 27u + 32u - WB_THETA_BITS - 16u;
    s.shrink = product(ctx->shrink, 1u, 16u - WB_THETA_BITS);
    s.noise = product(ctx->noise, 7085u, 28u - WB_THETA_BITS); /* 2^20 / 148 */
    s.clamp = clamp;
    return s;
}

static void backward(wb_context *ctx, const wb_input *x, int clamp) {
    const wb_config *config = ctx->config;
    int32_t *delta = last_outputs(ctx);
    uint32_t layer = config->layers, column = ctx->columns;
    while (layer-- > 0u) {
        const uint32_t n_in = inputs_of(config, layer), n_out = config->layer[layer].outputs;
        const uint32_t shift = shift_for((LARGEST_THETA >> 2) * (uint32_t)LARGEST_DELTA, n_out);
        const layer_step s = step_of(ctx, layer, clamp);
        const int frozen = is_frozen(ctx, layer);
        int32_t *before = layer > 0u ? delta - n_in : NULL; /* activations become deltas */
        uint32_t i, k;
        column -= n_in;
        for (i = 0u; i < n_in; i++) {
            const int32_t value = layer > 0u ? before[i] : (int32_t)x[i];
            const uint32_t size = signal_size(value);
            uint32_t end = ctx->start[column + i + 1u], begin = ctx->start[column + i];
            int32_t total = 0;
            if (value == 0) { /* and a delta of 0, since no ReLU was open */
                while (i + 1u < n_in && (layer > 0u ? before[i + 1u] : (int32_t)x[i + 1u]) == 0) i++;
                if (!frozen) move_idle(ctx, &s, begin, ctx->start[column + i + 1u]);
                continue;
            }
            for (k = begin; k < end; k++) {
                const uint32_t row = ctx->row[k];
                const int32_t d = delta[row & ROW_BITS];
                const int negative = (d < 0) != ((row & NEGATIVE) != 0u);
                const uint32_t d_size = magnitude(d);
                if (layer > 0u) total += with_sign(((uint32_t)ctx->theta[k] >> 2) * d_size >> shift, negative);
                if (!frozen) move_theta(ctx, &s, k, size * d_size, negative != (value < 0));
            }
            if (layer > 0u) {
                total = scaled(total, WB_THETA_BITS - 2 - (int32_t)shift);
                before[i] = total > LARGEST_DELTA ? LARGEST_DELTA : total < -LARGEST_DELTA ? -LARGEST_DELTA : total;
            }
        }
        if (ctx->bias != NULL && !frozen)
            for (i = 0u; i < n_out; i++) move_bias(ctx, i + (uint32_t)(delta - ctx->activation), delta[i]);
        delta = before;
    }
}

#else

/* What a step needs beside the gradients: the noise of 32 connections, and whether thetas stop at 0. */
typedef struct {
    float normals[32];
    uint32_t group, stream, first; /* first: of the wiring's connections, by which normals are counted */
    int clamp;
} float_step;

static float noise_of(const wb_context *ctx, float_step *s, uint32_t k) {
    const uint32_t number = k - s->first;
    if (number / 32u != s->group) {
        s->group = number / 32u;
        normal_group(ctx->config->seed, s->stream, ctx->step, s->group, s->normals);
    }
    return ctx->noise * s->normals[number % 32u];
}

static void move_theta(wb_context *ctx, float_step *s, uint32_t k, float gradient) {
    float theta = ctx->theta[k];
    if (ctx->buffer != NULL) {
        gradient = ctx->config->momentum * ctx->buffer[k] + gradient;
        ctx->buffer[k] = gradient;
    }
    theta -= ctx->lr * gradient; /* gradient */
    theta = theta - ctx->shrink; /* l1 */
    if (ctx->noise != 0.0f) theta += noise_of(ctx, s, k);
    if (s->clamp && theta < 0.0f) theta = 0.0f;
    ctx->theta[k] = theta;
}

/* Moves thetas whose gradient is 0: those of inputs that were 0. */
static void move_idle(wb_context *ctx, float_step *s, uint32_t from, uint32_t to) {
    const float shrink = ctx->shrink;
    float *theta = ctx->theta;
    uint32_t k;
    if (ctx->buffer != NULL || ctx->noise != 0.0f) {
        for (k = from; k < to; k++) move_theta(ctx, s, k, 0.0f);
    } else if (s->clamp) {
        for (k = from; k < to; k++) {
            const float moved = theta[k] - shrink;
            theta[k] = moved < 0.0f ? 0.0f : moved;
        }
    } else {
        for (k = from; k < to; k++) theta[k] -= shrink;
    }
}

static void move_bias(wb_context *ctx, uint32_t neuron, float delta) {
    if (ctx->bias_buffer != NULL) {
        delta = ctx->config->momentum * ctx->bias_buffer[neuron] + delta;
        ctx->bias_buffer[neuron] = delta;
    }
    ctx->bias[neuron] -= ctx->lr * delta;
}

static void backward(wb_context *ctx, const wb_input *x, int clamp) {
    const wb_config *config = ctx->config;
    float *delta = last_outputs(ctx);
    uint32_t layer = config->layers, column = ctx->columns;
    float_step s;
    s.clamp = clamp;
    while (layer-- > 0u) {
        const uint32_t n_in = inputs_of(config, layer), n_out = config->layer[layer].outputs;
        const int frozen = is_frozen(ctx, layer);
        float *before = layer > 0u ? delta - n_in : NULL; /* activations become deltas */
        uint32_t i, k;
        column -= n_in;
        s.first = config->scope == WB_PER_LAYER ? ctx->start[column] : 0u;
        s.stream = stream_of(NOISE, config->scope == WB_PER_LAYER ? layer : 0u);
        s.group = 0xffffffffu;
        for (i = 0u; i < n_in; i++) {
            const float value = layer > 0u ? before[i] : input_value(config, x[i]);
            const uint32_t begin = ctx->start[column + i], end = ctx->start[column + i + 1u];
            float total = 0.0f;
            if (value == 0.0f) { /* and a delta of 0, since no ReLU was open */
                while (i + 1u < n_in && (layer > 0u ? before[i + 1u] : input_value(config, x[i + 1u])) == 0.0f) i++;
                if (!frozen) move_idle(ctx, &s, begin, ctx->start[column + i + 1u]);
                continue;
            }
            for (k = begin; k < end; k++) {
                const uint32_t row = ctx->row[k];
                const float d = delta[row & ROW_BITS], theta = ctx->theta[k];
                total += ((row & NEGATIVE) != 0u ? -theta : theta) * d;
                if (!frozen) move_theta(ctx, &s, k, (row & NEGATIVE) != 0u ? -(d * value) : d * value);
            }
            if (layer > 0u) before[i] = total;
        }
        if (ctx->bias != NULL && !frozen)
            for (i = 0u; i < n_out; i++) move_bias(ctx, i + (uint32_t)(delta - ctx->activation), delta[i]);
        delta = before;
    }
}

#endif

static wb_status train(wb_context *ctx, const wb_input *x, uint32_t label, const wb_number *target) {
    uint32_t i;
    int clamp;
    forward(ctx, x);
    ctx->loss = ctx->config->loss == WB_CROSS_ENTROPY ? cross_entropy(last_outputs(ctx), outputs_of(ctx), label)
                                                      : mean_square(last_outputs(ctx), outputs_of(ctx), target, label);
#if !WB_FIXED
    if (!(ctx->loss - ctx->loss == 0.0f)) return WB_NOT_FINITE;
#endif
    ctx->step++;
    memset(ctx->born, 0, sizeof ctx->born);
#if WB_FIXED
    ctx->random = philox(ctx->config->seed, stream_of(ROUNDING, 0u), ctx->step, 0u).word[0] | 1u;
#endif
    clamp = ctx->step % ctx->config->rewire_every != 0u;
    backward(ctx, x, clamp);
    if (!clamp)
        for (i = 0u; i < wirings_of(ctx->config); i++) rewire(ctx, wiring_at(ctx->config, i));
    return WB_OK;
}

wb_status wb_train_step(wb_context *ctx, const wb_input *x, uint32_t label) {
    if (ctx == NULL || x == NULL) return WB_NULL_POINTER;
    if (label >= outputs_of(ctx)) return WB_BAD_LABEL;
    return train(ctx, x, label, NULL);
}

wb_status wb_train_step_to(wb_context *ctx, const wb_input *x, const wb_number *target) {
    if (ctx == NULL || x == NULL || target == NULL) return WB_NULL_POINTER;
    if (ctx->config->loss != WB_MEAN_SQUARE) return WB_BAD_SETTING;
    return train(ctx, x, 0u, target);
}

/* ---- the state as bytes ------------------------------------------------------------------------------------------- */

/* A slot: head, the arrays from the biases on, CRC-32 of both, and the word that says that all of it was written. */
#define HEAD_WORDS 5u
#define MAGIC 0x31444257u    /* WBD1 */
#if WB_FIXED
#define NUMBER_FORMAT WB_THETA_BITS
#else
#define NUMBER_FORMAT 32u
#endif
#define COMPLETE 0x4b4f4257u /* WBOK */

static uint32_t crc32(uint32_t crc, const void *bytes, uint32_t size) {
    const uint8_t *at = bytes;
    uint32_t bit;
    crc = ~crc;
    for (; size > 0u; size--, at++) {
        crc ^= *at;
        for (bit = 0u; bit < 8u; bit++) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1u)));
    }
    return ~crc;
}

/* What a state must have in common with the network that reads it. */
static uint32_t fingerprint(const wb_config *config) {
    uint16_t words[12];
    uint32_t crc, i;
    memset(words, 0, sizeof words);
    words[0] = NUMBER_FORMAT;
    words[1] = config->inputs;
    words[2] = config->layers;
    words[3] = (uint16_t)(config->scope | config->bias << 4 | config->has_momentum << 8);
    for (i = 0u; i < 4u; i++) words[4u + i] = (uint16_t)(config->seed >> (16u * i));
    crc = crc32(0u, words, 16u);
    for (i = 0u; i < config->layers; i++) {
        words[0] = config->layer[i].outputs;
        words[1] = config->layer[i].connections;
        crc = crc32(crc, words, 4u);
    }
    return crc;
}

static uint8_t *arrays_of(const wb_context *ctx) {
    return (uint8_t *)(ctx->bias != NULL ? (void *)ctx->bias : (void *)ctx->theta);
}

static uint32_t arrays_size(const wb_context *ctx) {
    return (uint32_t)((uint8_t *)(void *)(ctx->row + ctx->connections) - arrays_of(ctx));
}

uint32_t wb_state_size(const wb_context *ctx) { return ctx == NULL ? 0u : 4u * HEAD_WORDS + arrays_size(ctx) + 8u; }

/* Whether a slot holds a complete state; its head. */
static wb_status examine(const wb_context *ctx, const wb_storage *storage, uint32_t slot, uint32_t *head) {
    const uint32_t body = 4u * HEAD_WORDS + arrays_size(ctx);
    uint32_t tail[2], crc = 0u, at, piece[16];
    if (storage->read(storage->user, slot, 0u, head, 4u * HEAD_WORDS) != 0) return WB_STORAGE_FAILED;
    if (storage->read(storage->user, slot, body, tail, 8u) != 0) return WB_STORAGE_FAILED;
    if (head[0] != MAGIC) return WB_NO_STATE;
    if (head[2] != fingerprint(ctx->config) || head[4] != arrays_size(ctx)) return WB_OTHER_NETWORK;
    if (tail[1] != COMPLETE) return WB_NO_STATE;
    for (at = 0u; at < body; at += (uint32_t)sizeof piece) {
        const uint32_t size = body - at < sizeof piece ? body - at : (uint32_t)sizeof piece;
        if (storage->read(storage->user, slot, at, piece, size) != 0) return WB_STORAGE_FAILED;
        crc = crc32(crc, piece, size);
    }
    return crc == tail[0] ? WB_OK : WB_NO_STATE;
}

/* The slot with the newest complete state, or 2. */
static uint32_t newest(const wb_context *ctx, const wb_storage *storage, uint32_t *head, wb_status *status) {
    uint32_t heads[2][HEAD_WORDS], best;
    const wb_status first = examine(ctx, storage, 0u, heads[0]), second = examine(ctx, storage, 1u, heads[1]);
    *status = WB_OK;
    if (first != WB_OK && second != WB_OK) {
        const wb_status worse = first == WB_STORAGE_FAILED || second == WB_STORAGE_FAILED ? WB_STORAGE_FAILED : WB_NO_STATE;
        *status = first == WB_OTHER_NETWORK || second == WB_OTHER_NETWORK ? WB_OTHER_NETWORK : worse;
        return 2u;
    }
    /* Generations are counted modulo 2^32. */
    best = first != WB_OK || (second == WB_OK && (int32_t)(heads[1][1] - heads[0][1]) > 0) ? 1u : 0u;
    memcpy(head, heads[best], sizeof heads[best]);
    return best;
}

wb_status wb_save(const wb_context *ctx, const wb_storage *storage) {
    uint32_t head[HEAD_WORDS] = {0u}, tail[2] = {0u, 0u}, slot, body;
    wb_status status;
    int failed;
    if (ctx == NULL || storage == NULL || storage->read == NULL || storage->write == NULL) return WB_NULL_POINTER;
    body = 4u * HEAD_WORDS + arrays_size(ctx);
    slot = newest(ctx, storage, head, &status);
    if (status == WB_STORAGE_FAILED) return status;
    slot = slot == 0u ? 1u : 0u;
    head[0] = MAGIC;
    head[1] = status == WB_OK ? head[1] + 1u : 0u;
    head[2] = fingerprint(ctx->config);
    head[3] = ctx->step;
    head[4] = arrays_size(ctx);
    /* First of all the slot is marked as incomplete, last of all as complete. */
    if (storage->erase != NULL) failed = storage->erase(storage->user, slot);
    else failed = storage->write(storage->user, slot, body + 4u, &tail[1], 4u);
    if (failed != 0) return WB_STORAGE_FAILED;
    if (storage->write(storage->user, slot, 0u, head, 4u * HEAD_WORDS) != 0) return WB_STORAGE_FAILED;
    if (storage->write(storage->user, slot, 4u * HEAD_WORDS, arrays_of(ctx), head[4]) != 0) return WB_STORAGE_FAILED;
    tail[0] = crc32(crc32(0u, head, 4u * HEAD_WORDS), arrays_of(ctx), head[4]);
    tail[1] = COMPLETE;
    if (storage->write(storage->user, slot, body, tail, 8u) != 0) return WB_STORAGE_FAILED;
    return WB_OK;
}

static wb_status take_state(wb_context *ctx, const wb_storage *storage, uint32_t slot, const uint32_t *head) {
    if (storage->read(storage->user, slot, 4u * HEAD_WORDS, arrays_of(ctx), head[4]) != 0) return WB_STORAGE_FAILED;
    ctx->step = head[3];
    return wb_check(ctx);
}

wb_status wb_load(wb_context *ctx, const wb_storage *storage) {
    uint32_t head[HEAD_WORDS] = {0u}, slot;
    wb_status status;
    if (ctx == NULL || storage == NULL || storage->read == NULL) return WB_NULL_POINTER;
    slot = newest(ctx, storage, head, &status);
    return status != WB_OK ? status : take_state(ctx, storage, slot, head);
}

static int read_bytes(void *user, uint32_t slot, uint32_t offset, void *bytes, uint32_t size) {
    (void)slot;
    memcpy(bytes, (const uint8_t *)user + offset, size);
    return 0;
}

wb_status wb_load_bytes(wb_context *ctx, const void *bytes, size_t size) {
    uint32_t head[HEAD_WORDS];
    wb_storage storage = {NULL, read_bytes, NULL, NULL};
    wb_status status;
    if (ctx == NULL || bytes == NULL) return WB_NULL_POINTER;
    if (size < wb_state_size(ctx)) return WB_TOO_SMALL;
    memcpy(&storage.user, &bytes, sizeof bytes); /* it is only read */
    status = examine(ctx, &storage, 0u, head);
    return status != WB_OK ? status : take_state(ctx, &storage, 0u, head);
}

const char *wb_status_name(wb_status status) {
    switch (status) {
        case WB_OK: return "WB_OK";
        case WB_NULL_POINTER: return "WB_NULL_POINTER";
        case WB_BAD_SIZES: return "WB_BAD_SIZES";
        case WB_BAD_BUDGET: return "WB_BAD_BUDGET";
        case WB_BAD_SETTING: return "WB_BAD_SETTING";
        case WB_BAD_RATE: return "WB_BAD_RATE";
        case WB_TOO_SMALL: return "WB_TOO_SMALL";
        case WB_MISALIGNED: return "WB_MISALIGNED";
        case WB_BAD_LABEL: return "WB_BAD_LABEL";
        case WB_BAD_LAYER: return "WB_BAD_LAYER";
        case WB_NOT_FINITE: return "WB_NOT_FINITE";
        case WB_NO_STATE: return "WB_NO_STATE";
        case WB_OTHER_NETWORK: return "WB_OTHER_NETWORK";
        case WB_STORAGE_FAILED: return "WB_STORAGE_FAILED";
        case WB_BROKEN: return "WB_BROKEN";
        default: return "WB_UNKNOWN";
    }
}
