/* A chip that is taught through a stream: each command is five words, and a step's or a question's example follows it.
 *
 *   1 label lr shrink noise  x    one step; answers status and loss
 *   2 0 0 0 0                x    answers the predicted label
 *   3 0 0 0 0                     answers a report (below) and the state, as wb_save writes it
 *   4 layer frozen 0 0            freezes a layer, or trains it again; answers status
 *   5 label lr shrink noise  x    as 1, and every connection is checked after the step
 *   6 start end 0 0               answers outputs start .. end of the last question
 *   7 0 0 0 0                     answers how many ticks 2^20 instructions take
 *   0 0 0 0 0                     the end
 *
 * Rates and losses are the bits of wb_rate and wb_number.
 */
#include <string.h>

#include "network.h"
#include "port.h"

static uint32_t memory[(NETWORK_MEMORY + 3u) / 4u];
static wb_context ctx;
static wb_input x[NETWORK_INPUTS];
static uint32_t newborns[WB_MOST_LAYERS]; /* since the last report */
static uint32_t ticks, timed;             /* of all steps so far */

static wb_rate rate_of(uint32_t word) {
    wb_rate rate;
    memcpy(&rate, &word, sizeof rate);
    return rate;
}

static void answer(uint32_t first, uint32_t second) {
    uint32_t words[2];
    words[0] = first;
    words[1] = second;
    port_write(words, sizeof words);
}

static void step(const uint32_t *command) {
    uint32_t before, i, loss;
    wb_status status = wb_set_rates(&ctx, rate_of(command[2]), rate_of(command[3]), rate_of(command[4]));
    before = port_ticks();
    if (status == WB_OK) status = wb_train_step(&ctx, x, command[1]);
    ticks += (port_ticks() - before) & 0xffffffu;
    timed++;
    for (i = 0u; i < network.layers; i++) newborns[i] += ctx.born[i];
    if (command[0] == 5u && status == WB_OK) status = wb_check(&ctx);
    memcpy(&loss, &ctx.loss, sizeof loss);
    answer((uint32_t)status, loss);
}

static int read_nothing(void *user, uint32_t slot, uint32_t offset, void *bytes, uint32_t size) {
    (void)user, (void)slot, (void)offset;
    memset(bytes, 0, size);
    return 0;
}

static int write_stream(void *user, uint32_t slot, uint32_t offset, const void *bytes, uint32_t size) {
    (void)user, (void)slot, (void)offset;
    port_write(bytes, size);
    return 0;
}

static int erase_nothing(void *user, uint32_t slot) {
    (void)user, (void)slot;
    return 0;
}

static void report(void) {
    static const wb_storage stream = {NULL, read_nothing, write_stream, erase_nothing};
    uint32_t i, active;
    answer((uint32_t)wb_check(&ctx), ctx.step);
    answer(ticks, timed);
    answer(port_stack_used(), port_static_used());
    answer((uint32_t)sizeof ctx, wb_state_size(&ctx));
    for (i = 0u; i < network.layers; i++) {
        active = wb_active(&ctx, i);
        answer(active, newborns[i]);
        newborns[i] = 0u;
    }
    (void)wb_save(&ctx, &stream);
}

int main(void) {
    uint32_t command[5];
    wb_status status = wb_init(&ctx, memory, sizeof memory, &network);
#if NETWORK_HAS_STATE
    if (status == WB_OK) status = wb_load_bytes(&ctx, network_state, sizeof network_state);
#endif
    port_open();
    answer((uint32_t)status, (uint32_t)wb_memory_needed(&network));
    port_flush();
    for (;;) {
        port_read(command, sizeof command);
        if (command[0] == 1u || command[0] == 2u || command[0] == 5u) port_read(x, sizeof x);
        switch (command[0]) {
            case 1u:
            case 5u: step(command); break;
            case 2u: answer((uint32_t)WB_OK, wb_predict(&ctx, x)); break;
            case 3u: report(); break;
            case 4u: answer((uint32_t)wb_freeze(&ctx, command[1], (int)command[2]), 0u); break;
            case 7u: answer(port_calibrate(), 0u); break;
            case 6u:
                port_write(ctx.activation + (ctx.neurons - NETWORK_OUTPUTS) + command[1],
                           (command[2] - command[1]) * (uint32_t)sizeof(wb_number));
                break;
            default: port_exit(0); break;
        }
        if (command[0] == 3u || command[0] == 4u || command[0] >= 6u) port_flush();
    }
}
