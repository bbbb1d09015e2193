/* A dense trainer of the same network by plain SGD, to compare with: all weights in float, one example a step.
 *
 * It answers the commands of emulator/main.c that a measurement needs. Weights of an input stand together, so that
 * inputs of 0 and silent neurons cost nothing, as in the sparse trainer.
 */
#include <math.h>

#include "port.h"

#define LAYERS 3u
static const uint32_t size[LAYERS + 1u] = {784u, 300u, 100u, 10u};
#define WEIGHTS (784u * 300u + 300u * 100u + 100u * 10u)

static float weight[WEIGHTS];
static float activation[410];
static uint8_t x[784];
static uint32_t ticks, timed;

static void forward(void) {
    const float *w = weight;
    float *y = activation, *from = activation;
    for (uint32_t layer = 0u; layer < LAYERS; layer++) {
        const uint32_t n_in = size[layer], n_out = size[layer + 1u];
        for (uint32_t r = 0u; r < n_out; r++) y[r] = 0.0f;
        for (uint32_t c = 0u; c < n_in; c++, w += n_out) {
            const float value = layer == 0u ? (float)x[c] * (1.0f / 255.0f) : from[c];
            if (value == 0.0f) continue;
            for (uint32_t r = 0u; r < n_out; r++) y[r] += w[r] * value;
        }
        if (layer + 1u < LAYERS)
            for (uint32_t r = 0u; r < n_out; r++) y[r] = y[r] < 0.0f ? 0.0f : y[r];
        from = y;
        y += n_out;
    }
}

static float loss_and_delta(uint32_t label) {
    float *z = activation + 400, top = z[0], sum = 0.0f;
    const float own = z[label];
    for (uint32_t i = 1u; i < 10u; i++) top = z[i] > top ? z[i] : top;
    for (uint32_t i = 0u; i < 10u; i++) sum += z[i] = expf(z[i] - top);
    for (uint32_t i = 0u; i < 10u; i++) z[i] /= sum;
    z[label] -= 1.0f;
    return logf(sum) + top - own;
}

static void backward(float lr) {
    float *w = weight + WEIGHTS, *delta = activation + 400;
    for (uint32_t layer = LAYERS; layer-- > 0u;) {
        const uint32_t n_in = size[layer], n_out = size[layer + 1u];
        float *before = layer > 0u ? delta - n_in : 0;
        w -= n_in * n_out;
        for (uint32_t c = 0u; c < n_in; c++) {
            const float value = layer == 0u ? (float)x[c] * (1.0f / 255.0f) : before[c];
            float *own = w + c * n_out, total = 0.0f;
            if (value == 0.0f) continue;
            for (uint32_t r = 0u; r < n_out; r++) {
                total += own[r] * delta[r];
                own[r] -= lr * value * delta[r];
            }
            if (layer > 0u) before[c] = total;
        }
        delta = before;
    }
}

static void answer(uint32_t first, uint32_t second) {
    const uint32_t words[2] = {first, second};
    port_write(words, sizeof words);
}

int main(void) {
    uint32_t command[5], seed = 1u;
    float *w = weight;
    for (uint32_t layer = 0u; layer < LAYERS; layer++) {
        const float scale = 3.46f / sqrtf((float)size[layer]); /* uniform, of variance 1 / inputs */
        for (uint32_t i = 0u; i < size[layer] * size[layer + 1u]; i++) {
            seed = seed * 1664525u + 1013904223u;
            *w++ = scale * ((float)(seed >> 8) / 16777216.0f - 0.5f);
        }
    }
    port_open();
    answer(0u, (uint32_t)(sizeof weight + sizeof activation));
    port_flush();
    for (;;) {
        port_read(command, sizeof command);
        if (command[0] == 1u) {
            union { uint32_t bits; float number; } lr = {command[2]}, loss;
            port_read(x, sizeof x);
            const uint32_t before = port_ticks();
            forward();
            loss.number = loss_and_delta(command[1]);
            backward(lr.number);
            ticks += (port_ticks() - before) & 0xffffffu;
            timed++;
            answer(0u, loss.bits);
        } else if (command[0] == 3u) {
            answer(0u, timed);
            answer(ticks, timed);
            answer(port_stack_used(), port_static_used());
            answer(0u, 0u);
            for (uint32_t layer = 0u; layer < LAYERS; layer++) answer(size[layer] * size[layer + 1u], 0u);
        } else if (command[0] == 7u) {
            answer(port_calibrate(), 0u);
        } else if (command[0] == 0u) {
            port_exit(0);
        }
        if (command[0] != 1u) port_flush();
    }
}
