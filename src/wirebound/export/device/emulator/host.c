/* The port of a computer: standard input and output. */
#include "port.h"

#include <stdio.h>
#include <stdlib.h>

void port_open(void) {}

void port_read(void *bytes, uint32_t size) {
    if (fread(bytes, 1, size, stdin) != size) exit(3);
}

void port_write(const void *bytes, uint32_t size) {
    if (fwrite(bytes, 1, size, stdout) != size) exit(3);
}

void port_flush(void) { (void)fflush(stdout); }
void port_exit(int code) { exit(code); }
uint32_t port_ticks(void) { return 0u; }
uint32_t port_calibrate(void) { return 0u; }
uint32_t port_stack_used(void) { return 0u; }
uint32_t port_static_used(void) { return 0u; }
