/* wirebound_device: a network that learns on a microcontroller inside a strict budget of connections, by deep rewiring
 * (DEEP R, Bellec, Kappel, Maass and Legenstein 2018, Algorithm 1). C99. MIT licence, see LICENSE.
 *
 *   static const wb_layer layers[] = {{300, 1764, WB_RATE(0.0357), 0}, {10, 228, WB_RATE(0.0577), 0}};
 *   static const wb_config config = {.inputs = 784, .layers = 2, .layer = layers, .lr = WB_RATE(0.05), ...};
 *   static uint32_t memory[...];                     at least wb_memory_needed(&config) bytes
 *   wb_context ctx;
 *   wb_init(&ctx, memory, sizeof memory, &config);   draws the first connections
 *   wb_train_step(&ctx, x, label);                   one step of Algorithm 1: exactly K connections afterwards
 *   label = wb_predict(&ctx, x);
 *
 * All state is in the context and in the memory, which belong to the caller: there are no global variables and nothing
 * is allocated, so any number of networks may be trained side by side. The config must outlive the context.
 *
 * Two builds of one source. WB_FIXED 0: float numbers; the steps are those of `wirebound train --batch-size 1` with the
 * same seed. WB_FIXED 1: integers alone, theta in 16 bits with stochastic rounding, no math.h: for chips without an FPU.
 */
#ifndef WIREBOUND_DEVICE_H
#define WIREBOUND_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifndef WB_FIXED
#define WB_FIXED 0 /* 1: integers alone */
#endif
#ifndef WB_INPUT_BYTES
#define WB_INPUT_BYTES 1 /* 1: inputs are bytes, of which the network sees input_scale * x; 0: wb_signal */
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef char wb_needs_int_of_32_bits[sizeof(int) >= 4u ? 1 : -1];

#if WB_FIXED
typedef int32_t wb_number; /* outputs, targets and the loss, in units of 2^-16 */
typedef int16_t wb_signal; /* inputs that are no bytes, in units of 2^-11 */
typedef uint32_t wb_rate;  /* in units of 2^-32, so below 1 */
typedef uint16_t wb_theta; /* in units of 2^-WB_THETA_BITS */
typedef int16_t wb_buffer; /* of the momentum, in units of 2^-10 */
#define WB_THETA_BITS 14
#define WB_RATE(number) ((wb_rate)((number) * 4294967296.0 + 0.5))
#define WB_NUMBER(number) ((wb_number)((number) * 65536.0))
#else
typedef float wb_number, wb_signal, wb_rate, wb_theta, wb_buffer;
#define WB_RATE(number) ((wb_rate)(number))
#define WB_NUMBER(number) ((wb_number)(number))
#endif

#if WB_INPUT_BYTES
typedef uint8_t wb_input;
#else
typedef wb_signal wb_input;
#endif

#define WB_MOST_LAYERS 8
#define WB_MOST_CONNECTIONS 65535u /* and columns; an output neuron's number has 15 bits */

typedef enum {
    WB_OK = 0,
    WB_NULL_POINTER,   /* a pointer that is needed is null */
    WB_BAD_SIZES,      /* sizes of layers, or their number, are out of range */
    WB_BAD_BUDGET,     /* a layer has more connections than places, or the network has none or too many */
    WB_BAD_SETTING,    /* loss, scope, newborns or rewire_every is not one of its values */
    WB_BAD_RATE,       /* a rate is negative or not finite, or the momentum is not below 1 */
    WB_TOO_SMALL,      /* the memory, or a state, has fewer bytes than it takes */
    WB_MISALIGNED,     /* the memory must start at a multiple of 4 */
    WB_BAD_LABEL,      /* a label is not below the number of outputs */
    WB_BAD_LAYER,      /* there is no layer of this number */
    WB_NOT_FINITE,     /* the loss is no finite number; the step was not taken */
    WB_NO_STATE,       /* no slot holds a complete state */
    WB_OTHER_NETWORK,  /* the state is that of another network, seed or number format */
    WB_STORAGE_FAILED, /* read, write or erase returned an error */
    WB_BROKEN          /* connections are not exactly K distinct, sorted, valid ones */
} wb_status;

enum { WB_CROSS_ENTROPY = 0, WB_MEAN_SQUARE = 1 }; /* loss */
enum { WB_GLOBAL = 0, WB_PER_LAYER = 1 };          /* scope: one budget, or one for each layer */
enum { WB_BY_SHARE = 0, WB_UNIFORM = 1 };          /* newborns of a global budget: layer by initial share, or uniform */

typedef struct {
    uint16_t outputs;     /* neurons */
    uint16_t connections; /* at the start; the sum over all layers is the budget K */
    wb_rate scale;        /* of the first weights: gain / sqrt(fan-in) */
    uint8_t frozen;       /* 1: nothing in it moves, dies or is born (wb_freeze changes it) */
} wb_layer;

typedef struct {
    uint16_t inputs;
    uint8_t layers;
    uint8_t loss;
    uint8_t scope;
    uint8_t newborns;
    uint8_t bias;           /* 1: layers have biases, which start at 0 and do not count in K */
    uint8_t has_momentum;   /* 1: the memory holds a buffer for each connection */
    uint16_t rewire_every;  /* steps between rewirings; in between theta stops at 0 */
    const wb_layer *layer;
    uint64_t seed;
    wb_rate lr;             /* eta */
    wb_rate l1;             /* alpha */
    wb_rate noise;          /* g: noise of amplitude eta g, as in the authors' code */
    wb_rate momentum;
    wb_rate input_scale;    /* of bytes, such as 1/255 */
} wb_config;

typedef struct {
    const wb_config *config;
    wb_theta *theta;          /* [K] */
    wb_number *bias;          /* [neurons], or null; integers in units of 2^-26 */
    wb_buffer *buffer;        /* [K], or null: the momentum */
    wb_number *bias_buffer;   /* [neurons], or null */
    uint16_t *start;          /* [columns + 1]: the first connection of each input neuron, through all layers */
    uint16_t *row;            /* [K]: output neuron, and in the highest bit whether the weight is negative */
    wb_number *activation;    /* [neurons]: activations, then deltas, then lists of a rewiring */
    uint32_t connections, columns, neurons, room; /* room: newborns that the list has room for */
    uint32_t step;            /* steps taken */
    uint32_t frozen;          /* a bit for each layer */
    uint16_t born[WB_MOST_LAYERS]; /* newborns of each layer in the last step */
    wb_number loss;           /* of the last step */
    wb_rate lr, shrink, noise; /* eta, eta alpha, and the noise's standard deviation, of the next step */
#if WB_FIXED
    uint32_t random;
#endif
} wb_context;

/* Bytes of memory that a network takes beside its context, or 0 if the config is wrong (wb_check_config says why). */
size_t wb_memory_needed(const wb_config *config);
wb_status wb_check_config(const wb_config *config);

/* Draws the first connections and weights. */
wb_status wb_init(wb_context *ctx, void *memory, size_t size, const wb_config *config);

/* One step: forward, loss, backward, update, death and birth. With the mean square, the target is 1 for the label. */
wb_status wb_train_step(wb_context *ctx, const wb_input *x, uint32_t label);
/* The same with a target for each output. */
wb_status wb_train_step_to(wb_context *ctx, const wb_input *x, const wb_number *target);

/* The number of the largest output; the outputs themselves, until the next call. */
uint32_t wb_predict(wb_context *ctx, const wb_input *x);
const wb_number *wb_run(wb_context *ctx, const wb_input *x);

/* The rate of the next steps; l1 and noise follow it. Or all three, for who computes them otherwise. */
wb_status wb_set_rate(wb_context *ctx, wb_rate lr);
wb_status wb_set_rates(wb_context *ctx, wb_rate lr, wb_rate shrink, wb_rate noise);
wb_status wb_freeze(wb_context *ctx, uint32_t layer, int frozen);

/* Connections of a layer now. */
uint32_t wb_active(const wb_context *ctx, uint32_t layer);
/* WB_OK if there are exactly K distinct, sorted, valid connections with theta >= 0. */
wb_status wb_check(const wb_context *ctx);

/* Where a state is kept: two slots of wb_state_size bytes. Functions return 0, or anything else for an error. */
typedef struct {
    void *user;
    int (*read)(void *user, uint32_t slot, uint32_t offset, void *bytes, uint32_t size);
    int (*write)(void *user, uint32_t slot, uint32_t offset, const void *bytes, uint32_t size);
    int (*erase)(void *user, uint32_t slot); /* null where bytes can be written over; writes come in order of offset */
} wb_storage;

uint32_t wb_state_size(const wb_context *ctx);
/* Writes the slot that does not hold the newest state: whenever the power fails, the older or the newer one is read. */
wb_status wb_save(const wb_context *ctx, const wb_storage *storage);
wb_status wb_load(wb_context *ctx, const wb_storage *storage);
/* A state that stands in memory, such as a constant. */
wb_status wb_load_bytes(wb_context *ctx, const void *bytes, size_t size);

const char *wb_status_name(wb_status status);

#ifdef __cplusplus
}
#endif
#endif
