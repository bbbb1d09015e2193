/* The port of an emulated Cortex-M: vectors, start, semihosting for the streams, SysTick for the clock, a painted stack.
 *
 * Semihosting is how a program on a chip asks the machine around it to read and write files; it takes no memory beside
 * the words of a call. The files are named pipes in the emulator's working folder.
 */
#include "port.h"

extern uint32_t wb_ram_begin, wb_data_begin, wb_data_end, wb_data_image, wb_bss_begin, wb_bss_end, wb_ram_end;
int main(void);
void wb_start(void);
static void fault(void);

#define PAINT 0xA5A5A5A5u
#define SYS_OPEN 0x01u
#define SYS_WRITE 0x05u
#define SYS_READ 0x06u
#define SYS_EXIT 0x18u
#define STOPPED_BY_ITSELF 0x20026u
#define STOPPED_BY_ERROR 0x20023u

typedef void (*vector)(void);
__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &wb_ram_end, (const void *)wb_start, (const void *)fault, (const void *)fault, (const void *)fault, (const void *)fault,
    (const void *)fault};

static uint32_t in_file, out_file;

static uint32_t call(uint32_t what, const void *block) {
    register uint32_t r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = block;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void fault(void) {
    (void)call(SYS_EXIT, (const void *)STOPPED_BY_ERROR);
    for (;;) {
    }
}

void wb_start(void) {
    volatile uint32_t *at;
    const uint32_t *from = &wb_data_image;
    uint32_t here;
    for (at = &wb_data_begin; at < &wb_data_end; at++) *at = *from++;
    for (at = &wb_bss_begin; at < &wb_bss_end; at++) *at = 0u;
    __asm__ volatile("mov %0, sp" : "=r"(here));
    for (at = &wb_bss_end; (uint32_t)at < here - 16u; at++) *at = PAINT;
#if defined(__ARM_FP)
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* the floating-point unit */
    __asm__ volatile("dsb\n isb");
#endif
    *(volatile uint32_t *)0xE000E014u = 0xFFFFFFu; /* SysTick counts down from there */
    *(volatile uint32_t *)0xE000E018u = 0u;
    *(volatile uint32_t *)0xE000E010u = 5u;
    (void)main();
    port_exit(0);
}

static uint32_t open_file(const char *name, uint32_t length, uint32_t mode) {
    uint32_t block[3];
    block[0] = (uint32_t)name;
    block[1] = mode;
    block[2] = length;
    return call(SYS_OPEN, block);
}

void port_open(void) {
    in_file = open_file("to_chip", 7u, 1u);   /* "rb" */
    out_file = open_file("from_chip", 9u, 5u); /* "wb" */
    if (in_file == 0xFFFFFFFFu || out_file == 0xFFFFFFFFu) port_exit(1);
}

void port_read(void *bytes, uint32_t size) {
    uint32_t block[3], left;
    block[0] = in_file;
    block[1] = (uint32_t)bytes;
    block[2] = size;
    while (block[2] > 0u) {
        left = call(SYS_READ, block);
        if (left == block[2]) port_exit(1); /* nothing came: the end */
        block[1] += block[2] - left;
        block[2] = left;
    }
}

void port_write(const void *bytes, uint32_t size) {
    uint32_t block[3], left;
    block[0] = out_file;
    block[1] = (uint32_t)bytes;
    block[2] = size;
    while (block[2] > 0u) {
        left = call(SYS_WRITE, block);
        if (left == block[2]) port_exit(1);
        block[1] += block[2] - left;
        block[2] = left;
    }
}

void port_flush(void) {}

void port_exit(int code) {
    (void)call(SYS_EXIT, (const void *)(code == 0 ? STOPPED_BY_ITSELF : STOPPED_BY_ERROR));
    for (;;) {
    }
}

uint32_t port_ticks(void) { return 0xFFFFFFu - *(volatile uint32_t *)0xE000E018u; }

uint32_t port_calibrate(void) {
    uint32_t left = 1u << 19;
    const uint32_t before = port_ticks();
    __asm__ volatile(".syntax unified\n1: subs %0, %0, #1\n bne 1b" : "+l"(left) : : "cc");
    return (port_ticks() - before) & 0xFFFFFFu;
}

uint32_t port_stack_used(void) {
    const uint32_t *at = &wb_bss_end;
    while (at < &wb_ram_end && *at == PAINT) at++;
    return (uint32_t)((const char *)&wb_ram_end - (const char *)at);
}

uint32_t port_static_used(void) { return (uint32_t)((const char *)&wb_bss_end - (const char *)&wb_ram_begin); }
