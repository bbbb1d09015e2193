// The C interface of the native kernels: what Python hands over, and the functions of kernels.def, which are all that is
// exported.
#pragma once

#include <stdint.h>

#if defined(_WIN32)
#define WB_API __declspec(dllexport)
#else
#define WB_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// What a kernel that returns int says, and below 0 what one that returns a count says instead. Where it is not WB_FINE
// nothing was written, unless memory ran out half way: then the arrays must be checked before they are used again.
enum {
    WB_FINE = 0,
    WB_NOT_FINITE = -1,  // a gradient or a theta is infinite or NaN
    WB_NO_MEMORY = -2,   // or no thread
    WB_BAD_INDEX = -3,   // colptr and packed_rows are no index of the layer
    WB_DORMANT = -4,     // a theta that is bound to its sign is below 0
    WB_BAD_INPUT = -5    // rows or columns of a sparse input are none of the layer
};

// Raised whenever a struct below or a signature in kernels.def changes; Python refuses a library with another number.
#define WB_ABI_VERSION 10

// ---- linear --------------------------------------------------------------------------------------------------------

// The arguments of linear_forward and linear_backward in their order, or with `blocks` of dense_forward and
// dense_backward. Python packs them in a fraction of the time in which it hands over so many one by one.
typedef struct wb_linear_forward {
    const void* x;
    int64_t x_stride;
    void* y;
    int64_t y_stride, batch, n_in, n_out, connections;
    const int64_t* colptr;
    const int32_t* packed_rows;
    const void* theta;
    int64_t bound;
    const void* bias;
    int64_t threads, blocks;
} wb_linear_forward;

typedef struct wb_linear_backward {
    const void* x;
    int64_t x_stride;
    const void* dy;
    int64_t dy_stride;
    void* dx;
    int64_t dx_stride;
    void* dtheta;
    int64_t batch, n_in, n_out, connections;
    const int64_t* colptr;
    const int32_t* packed_rows;
    const void* theta;
    int64_t threads, blocks;
} wb_linear_backward;

// ---- conv ----------------------------------------------------------------------------------------------------------

// A convolution of inputs of a certain size; pairs are height, width.
typedef struct wb_conv {
    int64_t batch, in_channels, out_channels, groups;  // groups divides both numbers of channels
    int64_t in_size[2];
    int64_t out_size[2];  // it says how many zeros follow the input, or how much of it is left out
    int64_t kernel[2];
    int64_t stride[2];
    int64_t before[2];    // zeros before the input
    int64_t dilation[2];
} wb_conv;

// ---- images --------------------------------------------------------------------------------------------------------
// Pairs are height, width.

// Pooling (the largest of each window) and local response normalisation over channels, in either order.
typedef struct wb_pool_norm {
    int64_t batch, channels;
    int64_t size[2];    // of the image before pooling
    int64_t pooled[2];  // and after; every window begins within the image
    int64_t window;     // its side, up to 15
    int64_t step;       // from one window to the next
    int64_t radius;     // channels on either side that count
    double alpha, beta, bias;
} wb_pool_norm;

// A dense convolution with stride 1, pooling of positive parts, normalisation.
typedef struct wb_stem {
    wb_pool_norm after;  // the size before pooling is that of the convolution's output
    int64_t in_channels;
    int64_t in_size[2];
    int64_t kernel[2];
    int64_t before[2];   // zeros before the input; the sizes say how many follow
} wb_stem;

// Pieces of images of bytes.
typedef struct wb_pieces {
    int64_t count, channels;
    int64_t size[2];   // of an image
    int64_t piece[2];  // of a piece
} wb_pieces;

// ---- random -------------------------------------------------------------------------------------------------------

// What a random number is drawn for, in the low byte of its stream's number: those of ops/philox.py that kernels use.
enum {
    WB_STREAM_NOISE = 2, WB_STREAM_NEWBORN = 3, WB_STREAM_NEWBORN_LAYER = 4, WB_STREAM_SIGN = 5, WB_STREAM_DROPOUT = 12
};

// ---- update --------------------------------------------------------------------------------------------------------

enum { WB_NONE = 0, WB_SGD = 1, WB_ADAM = 2 };

// The optimiser's rule as numbers, under torch's names. All fields are always read; unused ones may be zero.
typedef struct wb_rule {
    int32_t kind;       // WB_NONE (theta has been moved already), WB_SGD, or WB_ADAM
    int32_t nesterov;   // SGD
    int32_t fresh;      // SGD: the momentum is empty, and becomes the first gradient whatever the dampening
    int32_t decoupled;  // Adam: weight decay as in AdamW
    int32_t maximize;
    int32_t bound;      // theta is bound to its sign: it drifts, and below 0 it dies. 0: the optimiser, nothing else
    int32_t clamp;      // a step without rewiring: theta stops at 0 instead of dying
    uint32_t stream;    // of the noise
    uint64_t seed;      // of the noise
    int64_t step;       // number of this step, the first is 1: its random numbers go by it
    int64_t clock;      // Adam: how often this parameter has been moved, this time included
    double lr, momentum, dampening, weight_decay, beta1, beta2, eps;
} wb_rule;

// The rest of Algorithm 1 for connections first .. last: theta - shrink + noise_std * normal(k); and how much of the
// rule's rates they have.
typedef struct wb_drift_and_noise {
    int64_t first, last;
    double shrink;        // eta alpha
    double noise_std;     // sqrt(2 eta T); 0 draws nothing
    double lr_factor;     // on the rule's lr
    double decay_factor;  // on the rule's weight_decay
    double second_moment; // Adam: the squared gradient with which a moment2 of 0, a newborn's, starts; 0: with nothing
    int32_t frozen;       // nothing of them changes, optimiser state included
    int32_t lazy;         // nothing of those changes whose gradient is exactly 0 in this step
} wb_drift_and_noise;

// A dense parameter and its optimiser state, as in wb_update_f32.
typedef struct wb_parameter {
    float* data;  // null: there is none
    float* moment1;
    float* moment2;
    float* moment2_max;
    double weight_decay;
    int64_t step;  // steps that the optimiser has taken on it before this call
} wb_parameter;

// ---- rewire --------------------------------------------------------------------------------------------------------

// An array of one element per connection that moves along, and what a newborn holds there.
typedef struct wb_carried {
    void* data;
    int64_t size;  // bytes of an element: 1, 2, 4 or 8
    int64_t fill;  // its low `size` bytes: 0, or for instance the clock at birth
} wb_carried;

// ---- step ----------------------------------------------------------------------------------------------------------

// A whole step of Algorithm 1 for one wiring: wb_update, then wb_rewire for who died in it.
typedef struct wb_step {
    wb_rule rule;        // its seed and step are also those of the rewiring
    int64_t budget, layers;
    const int64_t* n_in;
    const int64_t* n_out;
    int64_t* colptr;
    int32_t* packed_rows;
    void* theta;         // float or double, as are the next four
    const void* gradient;
    void* moment1;
    void* moment2;
    void* moment2_max;
    const int32_t* birth;  // the clock at which each connection was born, or null
    const wb_drift_and_noise* drifts;
    int64_t n_drifts;
    const wb_carried* carried;  // all that moves along: theta, and whatever the optimiser keeps
    int64_t n_carried;
    const double* shares;
    int64_t* born;       // out, [layers]
    int64_t* died;       // out, [layers]
    int64_t* active;     // out, [layers]: thetas >= 0 afterwards, counted
    const int64_t* open_columns;  // newborns come to these columns while they have room: sorted, of each layer in turn
    const int64_t* open_counts;   // [layers]: how many; -1: all of the layer, of which none are listed. Null: all of all
    int32_t wiring_index;
} wb_step;

// ---- fused step ----------------------------------------------------------------------------------------------------

enum { WB_IDENTITY = 0, WB_RELU = 1, WB_TANH = 2, WB_SIGMOID = 3 };
enum { WB_CROSS_ENTROPY = 0, WB_MEAN_SQUARE = 1, WB_SOFT_CROSS_ENTROPY = 2 };
enum { WB_LOSS_NOT_FINITE = 1, WB_THETA_NOT_FINITE = 2 };

typedef struct wb_fused_layer {
    int64_t n_in, n_out;  // n_in is n_out of the layer before
    int32_t activation;   // WB_IDENTITY, WB_RELU, WB_TANH or WB_SIGMOID
    int32_t wiring;       // number of the wiring that holds the weights, or -1: they are dense
    int64_t layer_id;     // number of this layer within the wiring
    wb_parameter weight;  // dense: [n_out, n_in] row-major
    wb_parameter bias;    // [n_out]
    double dropout;       // share of its inputs that is left out, in [0, 1); then the numbers that decide which
    uint64_t dropout_seed;
    int64_t dropout_calls;  // batches that were drawn for before this call
    int64_t dropout_index;
} wb_fused_layer;

// A wiring, its optimiser state, and how it drifts and rewires.
typedef struct wb_fused_wiring {
    int64_t budget, layers;
    const int64_t* n_in;
    const int64_t* n_out;
    int64_t* colptr;
    int32_t* packed_rows;
    float* theta;
    float* moment1;
    float* moment2;
    float* moment2_max;
    int32_t* born;            // the clock at birth; null: all are as old as theta
    const double* shares;     // [layers]: newborns by layer; null: uniform over all dormant positions
    const double* shrink;     // eta alpha at [step * drift_stride + layer], or null
    const double* noise_std;  // sqrt(2 eta T), likewise
    int64_t drift_stride;     // layers, or 0: the same in every step
    const double* lr_factor;  // [layers], or null: 1; these three as in wb_drift_and_noise
    const double* decay_factor;
    const double* second_moment;  // [layers], or null: 0
    const int32_t* lazy;      // [layers], or null: none; as in wb_drift_and_noise
    int64_t rewire_every;     // steps whose number is a multiple rewire, in others theta stops at 0; 0: never rewire
    double weight_decay;
    int64_t clock;            // how often theta was moved before this call
    uint64_t seed;
    int32_t index;            // number of the wiring in its model
    int32_t bound;            // 0: theta may take any sign, nothing drifts, dies or is born
} wb_fused_wiring;

typedef struct wb_fused_run {
    int64_t steps;
    int64_t first_step;         // number of the first of them; the first of a run is 1
    int64_t n_layers, n_wirings;
    const wb_fused_layer* layers;
    const wb_fused_wiring* wirings;
    wb_rule rule;               // kind, nesterov, fresh (for the first step), decoupled, maximize, momentum, dampening,
                                // beta1, beta2, eps; the rest is set for each parameter and step
    const double* lr;           // [steps]
    const void* x;              // [samples, n_in], float or uint8
    int64_t x_stride;           // elements from one sample to the next
    int32_t x_is_bytes;
    int32_t loss_kind;          // WB_CROSS_ENTROPY and WB_SOFT_CROSS_ENTROPY (means over samples), or WB_MEAN_SQUARE (mean
                                // over all elements)
    float scale, shift;         // the network sees scale * x + shift
    const int64_t* labels;      // [samples], for the cross-entropy
    const float* targets;       // [samples, n_out], for the mean square; probabilities, for the soft cross-entropy
    int64_t target_stride;
    const int64_t* order;       // the samples of all steps, one batch after the other
    const int64_t* batch;       // [steps], samples of each step, at least 1
    double* loss;               // out, [steps]
    int64_t* born;              // out, newborns at [step * born_stride + layer], wirings one after another; may be null
    int64_t born_stride;
    const int64_t* row_starts;  // or null. The data set as sparse rows instead of x: the nonzeros of sample i are
    const int32_t* row_columns; // row_starts[i] .. row_starts[i + 1]; columns, in [0, n_in), may occur twice and add up.
    const float* row_values;    // The network sees scale * value; shift and the dropout of inputs are not for them
    int64_t* active;            // out, [steps], or null: connections that are active after each step, counted
    int64_t* judged;            // out, [steps], or null: those of the layer on sparse rows, if it is lazy, that each step judged
} wb_fused_run;

// ---- stack ---------------------------------------------------------------------------------------------------------

typedef struct wb_stack_layer {
    int64_t n_in, n_out;    // n_in is n_out of the layer before
    int64_t budget;         // connections of the whole wiring
    const int64_t* colptr;  // at the layer's first column
    const int32_t* packed_rows;    // of the whole wiring, unlike in a layer view
    const float* theta;     // likewise
    const float* bias;      // [n_out], or null
    int32_t activation;     // WB_IDENTITY, WB_RELU, WB_TANH or WB_SIGMOID
    int32_t bound;
} wb_stack_layer;

// The arguments of stack_forward, and of stack_backward, for which y is dy, and behind which the gradients follow.
typedef struct wb_stack_call {
    const wb_stack_layer* layers;
    int64_t n_layers;
    const float* x;
    int64_t x_stride, batch;
    float *kept, *y;
    int64_t y_stride;
    float* dx;
    int64_t dx_stride;
} wb_stack_call;

// ---- recurrent -----------------------------------------------------------------------------------------------------
// The matrices are layer views of [gates * n_hidden, n_in] and [gates * n_hidden, n_hidden]; void* are float or double.

enum { WB_LSTM = 0, WB_GRU = 1 };

typedef struct wb_recurrent {
    int32_t kind;            // WB_LSTM or WB_GRU
    int32_t reverse;         // time runs from each sequence's end to its start
    int64_t steps, batch, n_in, n_hidden;
    const int64_t* lengths;  // [batch], steps of each sequence in [0, steps]; null: all have all
    int64_t connections_ih, connections_hh;
    int32_t bound;
    const int64_t* colptr_ih;
    const int32_t* packed_rows_ih;
    const void* theta_ih;
    const int64_t* colptr_hh;
    const int32_t* packed_rows_hh;
    const void* theta_hh;
    const void* bias_ih;     // [gates * n_hidden]; both or none
    const void* bias_hh;
    const void* x;           // element [t, b, i] is x[t * x_time + b * x_sample + i]; finite where no sequence is
    int64_t x_time, x_sample;
    const void* h_0;         // [batch, n_hidden], as are all states
    const void* c_0;         // LSTM
    void* y;                 // h of all steps, 0 where no sequence is
    int64_t y_time, y_sample;
    void* h_n;
    void* c_n;               // LSTM
    void* kept;              // for the backward pass, or null: 5 * n_hidden * steps numbers for each sequence, their
                             // number rounded up: whole panels of 128 bytes, then one of 32, 64 or 128
} wb_recurrent;

typedef struct wb_recurrent_gradients {
    const void* dy;          // null: 0, as dh_n and dc_n
    int64_t dy_time, dy_sample;
    const void* dh_n;
    const void* dc_n;
    void* dx;                // may be null
    int64_t dx_time, dx_sample;
    void* dh_0;              // all gradients are overwritten
    void* dc_0;              // LSTM
    void* dtheta_ih;
    void* dtheta_hh;
    void* dbias_ih;          // null if there are no biases
    void* dbias_hh;
    void* sums;              // null, or [steps, batch, n_hidden, 4], written where a panel has a sequence: the gradients
                             // of i, f, g, o, or of r, z, and n's part from x and from h, before their functions
    void* h_before;          // null, or [steps, batch, n_hidden]: h that went into each step; written where sums is
} wb_recurrent_gradients;

// ---- functions ----------------------------------------------------------------------------------------------------

#define WB_EACH(unit, result, name, kernel, parameters, arguments) WB_API result wb_##name parameters;
#include "each_function.h"

#ifdef __cplusplus
}
#endif
