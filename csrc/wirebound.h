// The C interface of the native kernels. Everything Python calls is declared here, and nothing else is exported.
//
// A kernel sees one layer at a time (a "layer view"): colptr points at the layer's first column and keeps absolute
// values; packed_rows, theta and dtheta point at the layer's first connection, so connection k is element k - colptr[0].
// packed_rows holds the row in its low 31 bits; the top bit set means the sign is -1. A weight is sign * theta. `connections`
// is how many the layer has; `bound` says that theta is bound to its sign, so that one below 0 would be dormant.
// `threads` is an upper bound: small work stays on the calling thread. No result depends on it.
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
    WB_DORMANT = -4      // a theta that is bound to its sign is below 0
};

// ---- library -------------------------------------------------------------------------------------------------------

// Raised whenever a signature below changes; Python refuses a library with another number.
#define WB_ABI_VERSION 3
WB_API int wb_abi_version(void);

// Name of the instruction set in use: "baseline", "v3", "v4" or "neon".
WB_API const char* wb_isa(void);

// ---- linear --------------------------------------------------------------------------------------------------------
// x, y, dx, dy are row-major [batch, n] with the given row strides (in elements). W[row, column] = sign * theta.

// y = x W^T + bias; bias may be null.
WB_API int wb_linear_forward_f32(const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t batch,
                                 int64_t n_in, int64_t n_out, int64_t connections, const int64_t* colptr,
                                 const int32_t* packed_rows, const float* theta, int bound, const float* bias, int threads);
WB_API int wb_linear_forward_f64(const double* x, int64_t x_stride, double* y, int64_t y_stride, int64_t batch,
                                 int64_t n_in, int64_t n_out, int64_t connections, const int64_t* colptr,
                                 const int32_t* packed_rows, const double* theta, int bound, const double* bias, int threads);

// dx = dy W and dtheta_k = sign_k * sum_b x[b, column_k] dy[b, row_k]; either may be null. Both are overwritten.
WB_API int wb_linear_backward_f32(const float* x, int64_t x_stride, const float* dy, int64_t dy_stride, float* dx,
                                  int64_t dx_stride, float* dtheta, int64_t batch, int64_t n_in, int64_t n_out,
                                  int64_t connections, const int64_t* colptr, const int32_t* packed_rows, const float* theta,
                                  int threads);
WB_API int wb_linear_backward_f64(const double* x, int64_t x_stride, const double* dy, int64_t dy_stride, double* dx,
                                  int64_t dx_stride, double* dtheta, int64_t batch, int64_t n_in, int64_t n_out,
                                  int64_t connections, const int64_t* colptr, const int32_t* packed_rows, const double* theta,
                                  int threads);

// ---- conv ----------------------------------------------------------------------------------------------------------
// x, y, dx, dy are contiguous [batch, channels, height, width]. The layer view is that of the matrix [out_channels,
// in_channels / groups * kernel height * kernel width]: column (c * kernel height + ky) * kernel width + kx.

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

// y = x * W + bias; bias may be null.
WB_API int wb_conv_forward_f32(const wb_conv* conv, const float* x, float* y, int64_t connections,
                               const int64_t* colptr, const int32_t* packed_rows, const float* theta, int bound,
                               const float* bias, int threads);
WB_API int wb_conv_forward_f64(const wb_conv* conv, const double* x, double* y, int64_t connections,
                               const int64_t* colptr, const int32_t* packed_rows, const double* theta, int bound,
                               const double* bias, int threads);

// The gradients to x and to theta at the active positions; either may be null. Both are overwritten.
WB_API int wb_conv_backward_f32(const wb_conv* conv, const float* x, const float* dy, float* dx, float* dtheta,
                                int64_t connections, const int64_t* colptr, const int32_t* packed_rows, const float* theta,
                                int threads);
WB_API int wb_conv_backward_f64(const wb_conv* conv, const double* x, const double* dy, double* dx, double* dtheta,
                                int64_t connections, const int64_t* colptr, const int32_t* packed_rows, const double* theta,
                                int threads);

// ---- random --------------------------------------------------------------------------------------------------------
// Philox4x32-10 with key = seed and counter = (block, step, stream); src/wirebound/ops/philox.py has the definitions.

// The first n words of a stream.
WB_API void wb_words(uint64_t seed, uint32_t stream, uint64_t step, int64_t n, uint32_t* out);

// Standard normals number first .. first + n of a stream.
WB_API void wb_normals(uint64_t seed, uint32_t stream, uint64_t step, int64_t first, int64_t n, float* out);

// The constant sign, +1 or -1, of each position.
WB_API void wb_signs(uint64_t seed, uint32_t stream, const int64_t* positions, int64_t n, int8_t* out);

// k distinct numbers of [0, n), every subset equally likely, sorted. 0 <= k <= n < 2^62.
WB_API int wb_sample_sorted(int64_t n, int64_t k, uint64_t seed, uint32_t stream, uint64_t step, int64_t* out);

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
    int32_t frozen;       // nothing of them changes, optimiser state included
} wb_drift_and_noise;

// Moves n thetas in place and returns how many are below 0 (see `bound`); their sorted indices go to dead, as many as
// its capacity holds. moment1: momentum (may be null) or exp_avg; moment2: exp_avg_sq; moment2_max: max_exp_avg_sq or
// null; born: the clock at which each connection was born, or null if all are as old as the parameter. drifts are sorted
// and do not overlap. WB_NOT_FINITE if theta or the gradient is not finite, or the result would not be: everything is
// then as it was.
WB_API int64_t wb_update_f32(const wb_rule* rule, int64_t n, float* theta, const float* gradient, float* moment1,
                             float* moment2, float* moment2_max, const int32_t* born, const wb_drift_and_noise* drifts,
                             int64_t n_drifts, int64_t* dead, int64_t capacity, int threads);
WB_API int64_t wb_update_f64(const wb_rule* rule, int64_t n, double* theta, const double* gradient, double* moment1,
                             double* moment2, double* moment2_max, const int32_t* born, const wb_drift_and_noise* drifts,
                             int64_t n_drifts, int64_t* dead, int64_t capacity, int threads);

// How many thetas are below 0; their sorted indices go to dead, as many as its capacity holds. For callers whose
// capacity was too small.
WB_API int64_t wb_dead_f32(const float* theta, int64_t n, int64_t* dead, int64_t capacity);
WB_API int64_t wb_dead_f64(const double* theta, int64_t n, int64_t* dead, int64_t capacity);

// Whether all n numbers are finite.
WB_API int wb_all_finite_f32(const float* values, int64_t n);
WB_API int wb_all_finite_f64(const double* values, int64_t n);

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

// Replaces the dead (sorted, distinct indices) of a wiring by as many newborns, in place; theta is one of the carried.
// budget: K; n_in, n_out: the matrices; colptr and packed_rows: of the whole wiring. Newborns are drawn uniformly over all
// dormant positions, the dead included (shares null), or by layer in proportion to shares[layers], then uniformly
// within the layer. born and died count them for each layer. Connections stay sorted and distinct. Returns how many.
WB_API int64_t wb_rewire(int64_t budget, int64_t layers, const int64_t* n_in, const int64_t* n_out, int64_t* colptr,
                         int32_t* packed_rows, const wb_carried* carried, int64_t n_carried, const int64_t* dead, int64_t n_dead,
                         uint64_t seed, int32_t wiring_index, int64_t step, const double* shares, int64_t* born,
                         int64_t* died, int threads);

// Whether colptr and packed_rows are an index of `budget` connections in these matrices: pointers that rise from 0 to the budget,
// rows inside of their layer that rise within each column.
WB_API int wb_wiring_is_good(int64_t budget, int64_t layers, const int64_t* n_in, const int64_t* n_out,
                             const int64_t* colptr, const int32_t* packed_rows);

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
    int32_t wiring_index;
} wb_step;

// Returns how many were replaced, or WB_NOT_FINITE as wb_update_f32 does.
WB_API int64_t wb_step_f32(const wb_step* task, int threads);
WB_API int64_t wb_step_f64(const wb_step* task, int threads);

// ---- fused step ----------------------------------------------------------------------------------------------------
// Whole training steps of a stack of layers, on one thread: forward, loss, backward, update, rewiring. The numbers are
// those of the separate kernels up to rounding, and the random numbers are the same.

enum { WB_IDENTITY = 0, WB_RELU = 1, WB_TANH = 2, WB_SIGMOID = 3 };
enum { WB_CROSS_ENTROPY = 0, WB_MEAN_SQUARE = 1 };
enum { WB_LOSS_NOT_FINITE = 1, WB_THETA_NOT_FINITE = 2 };

typedef struct wb_fused_layer {
    int64_t n_in, n_out;  // n_in is n_out of the layer before
    int32_t activation;   // WB_IDENTITY, WB_RELU, WB_TANH or WB_SIGMOID
    int32_t wiring;       // number of the wiring that holds the weights, or -1: they are dense
    int64_t part;         // number of this layer within the wiring
    wb_parameter weight;  // dense: [n_out, n_in] row-major
    wb_parameter bias;    // [n_out]
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
    int64_t drift_stride;      // layers, or 0: the same in every step
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
    int32_t loss_kind;          // WB_CROSS_ENTROPY (mean over samples) or WB_MEAN_SQUARE (mean over all elements)
    float scale, shift;         // the network sees scale * x + shift
    const int64_t* labels;      // [samples], for the cross-entropy
    const float* targets;       // [samples, n_out], for the mean square
    int64_t target_stride;
    const int64_t* order;       // the samples of all steps, one batch after the other
    const int64_t* batch;       // [steps], samples of each step, at least 1
    double* loss;               // out, [steps]
    int64_t* born;              // out, newborns at [step * born_stride + layer], wirings one after another; may be null
    int64_t born_stride;
} wb_fused_run;

// Returns the number of steps taken, or WB_NO_MEMORY or WB_BAD_INDEX. *status says why it stopped early: WB_LOSS_NOT_FINITE, at a step whose loss is
// written but nothing else, or WB_THETA_NOT_FINITE, after a step that was not rewired.
WB_API int64_t wb_fused_steps_f32(const wb_fused_run* run, int32_t* status);

// ---- stack ---------------------------------------------------------------------------------------------------------
// Forward and backward of sparse layers that follow each other, in one call each, on one thread.

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

// x and y are row-major as for the linear kernels. kept receives every layer's output for the backward pass. Its size is
// the sum of n_out, times the batch rounded up to ceil(batch / 32) panels of the same multiple of 8 samples, plus 2.
WB_API int wb_stack_forward_f32(const wb_stack_layer* layers, int64_t n_layers, const float* x, int64_t x_stride,
                                 int64_t batch, float* kept, float* y, int64_t y_stride);

// Gradients, from x and kept as the forward pass had and left them; dx may be null. The first n_layers of `gradients`
// point at the gradient of the theta of each layer's whole wiring, of which the layer's part is overwritten (a part that
// occurs twice gets the sum). As many follow for the biases, null for none.
WB_API int wb_stack_backward_f32(const wb_stack_layer* layers, int64_t n_layers, const float* x, int64_t x_stride,
                                  int64_t batch, const float* kept, const float* dy, int64_t dy_stride, float* dx,
                                  int64_t dx_stride, float* const* gradients);

// ---- recurrent -----------------------------------------------------------------------------------------------------
// One direction of one LSTM or GRU layer through all of time; src/wirebound/ops/recurrence.py has the equations. The
// matrices are layer views of [gates * n_hidden, n_in] and [gates * n_hidden, n_hidden]; void* are float or double.

enum { WB_LSTM = 0, WB_GRU = 1 };

typedef struct wb_recurrent {
    int32_t kind;            // WB_LSTM or WB_GRU
    int32_t reverse;         // time runs from each sequence's end to its start
    int64_t steps, batch, n_in, n_hidden;
    const int64_t* lengths;  // [batch], steps of each sequence in [0, steps]; null: all have all
    int64_t connections_ih, connections_hh;
    int32_t bound;
    const int64_t* colptr_ih;
    const int32_t* code_ih;
    const void* theta_ih;
    const int64_t* colptr_hh;
    const int32_t* code_hh;
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

WB_API int wb_recurrent_forward_f32(const wb_recurrent* task, int threads);
WB_API int wb_recurrent_forward_f64(const wb_recurrent* task, int threads);

// y, h_n and c_n of the task are not read.
WB_API int wb_recurrent_backward_f32(const wb_recurrent* task, const wb_recurrent_gradients* gradients, int threads);
WB_API int wb_recurrent_backward_f64(const wb_recurrent* task, const wb_recurrent_gradients* gradients, int threads);

#ifdef __cplusplus
}
#endif
