/* Cuts the power at every byte of wb_save, and damages every byte of a slot: the older or the newer state is read, whole. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "network.h"

static uint8_t slots[2][NETWORK_STATE];
static long left; /* bytes that can still be written; below 0: no limit */
static int with_erase;

static int read_slot(void *user, uint32_t slot, uint32_t offset, void *bytes, uint32_t size) {
    (void)user;
    memcpy(bytes, slots[slot] + offset, size);
    return 0;
}

static int put(uint32_t slot, uint32_t offset, uint8_t byte) {
    if (left == 0) return 1;
    if (left > 0) left--;
    slots[slot][offset] = byte;
    return 0;
}

static int write_slot(void *user, uint32_t slot, uint32_t offset, const void *bytes, uint32_t size) {
    uint32_t i;
    (void)user;
    for (i = 0u; i < size; i++)
        if (put(slot, offset + i, ((const uint8_t *)bytes)[i]) != 0) return 1;
    return 0;
}

static int erase_slot(void *user, uint32_t slot) {
    uint32_t i;
    (void)user;
    for (i = 0u; i < NETWORK_STATE; i++)
        if (put(slot, i, 0xffu) != 0) return 1;
    return 0;
}

static uint32_t memory[2][(NETWORK_MEMORY + 3u) / 4u];
static wb_context ctx, after;
static wb_input x[NETWORK_INPUTS];

static void fail(const char *what, long at) {
    printf("%s at byte %ld\n", what, at);
    exit(1);
}

static void learn(uint32_t steps) {
    uint32_t i;
    for (; steps > 0u; steps--) {
        for (i = 0u; i < NETWORK_INPUTS; i++) x[i] = (wb_input)(rand() % 200);
        if (wb_train_step(&ctx, x, (uint32_t)rand() % NETWORK_OUTPUTS) != WB_OK) fail("a step", (long)ctx.step);
    }
}

/* The step of the state that a restart finds; its connections are compared with those of a slot that was whole. */
static uint32_t restart(const uint8_t *older, const uint8_t *newer, long at) {
    static const wb_storage storage = {NULL, read_slot, write_slot, NULL};
    const uint8_t *found;
    uint32_t step;
    if (wb_init(&after, memory[1], sizeof memory[1], &network) != WB_OK) fail("wb_init", at);
    if (wb_load(&after, &storage) != WB_OK) fail("no state", at);
    memcpy(&step, older + 12, 4);
    found = after.step == step ? older : newer;
    memcpy(&step, found + 12, 4);
    if (after.step != step) fail("a state of no step", at);
    if (memcmp(after.bias != NULL ? (void *)after.bias : (void *)after.theta, found + 20, NETWORK_STATE - 28u) != 0)
        fail("a mixture", at);
    return after.step;
}

int main(void) {
    const wb_storage plain = {NULL, read_slot, write_slot, NULL}, flash = {NULL, read_slot, write_slot, erase_slot};
    static uint8_t before[2][NETWORK_STATE], older[NETWORK_STATE], newer[NETWORK_STATE];
    long cut, older_read, newer_read, total, first_newer;
    uint32_t generation, i;
    for (with_erase = 0; with_erase < 2; with_erase++) {
        const wb_storage *storage = with_erase ? &flash : &plain;
        memset(slots, 0xff, sizeof slots);
        left = -1;
        if (wb_init(&ctx, memory[0], sizeof memory[0], &network) != WB_OK) fail("wb_init", 0);
        if (wb_load(&ctx, storage) != WB_NO_STATE) fail("a state out of nothing", 0);
        for (generation = 0u; generation < 4u; generation++) { /* the slots take turns */
            if (wb_save(&ctx, storage) != WB_OK) fail("wb_save", (long)generation);
            memcpy(older, slots[generation % 2u], NETWORK_STATE);
            if (generation < 3u) learn(5u);
        }
        learn(5u);
        memcpy(before, slots, sizeof slots);
        left = 1L << 30;
        if (wb_save(&ctx, storage) != WB_OK) fail("wb_save", 4);
        total = (1L << 30) - left;
        memcpy(newer, slots[0], NETWORK_STATE);
        if (memcmp(slots[1], older, NETWORK_STATE) != 0) fail("the newest slot was touched", 0);
        older_read = newer_read = 0;
        first_newer = -1;
        for (cut = 0; cut <= total; cut++) {
            memcpy(slots, before, sizeof slots);
            left = cut;
            if ((wb_save(&ctx, storage) == WB_OK) != (cut == total)) fail("wb_save does not say that it failed", cut);
            if (restart(older, newer, cut) == ctx.step) {
                newer_read++;
                if (first_newer < 0) first_newer = cut;
            } else {
                older_read++;
            }
        }
        if (newer_read < 1 || first_newer != total) fail("the newer state is read too early or never", first_newer);
        left = -1;
        for (i = 0u; i < NETWORK_STATE; i++) { /* a byte of the newest slot is lost */
            memcpy(slots, before, sizeof slots);
            if (wb_save(&ctx, storage) != WB_OK) fail("wb_save", (long)i);
            slots[0][i] = (uint8_t)(slots[0][i] ^ 0x10u);
            if (restart(older, newer, (long)i) == ctx.step) fail("a damaged state was read", (long)i);
        }
        printf("%s: %ld cuts, the older state %ld times, the newer %ld\n", with_erase ? "flash" : "plain", total + 1, older_read, newer_read);
    }
    memset(slots, 0, sizeof slots);
    if (wb_load_bytes(&ctx, newer, NETWORK_STATE - 1u) != WB_TOO_SMALL) fail("a short state was read", 0);
    if (wb_load_bytes(&ctx, newer, NETWORK_STATE) != WB_OK) fail("wb_load_bytes", 0);
    newer[8] ^= 1u;
    if (wb_load_bytes(&ctx, newer, NETWORK_STATE) != WB_OTHER_NETWORK) fail("the state of another network was read", 0);
    return 0;
}
