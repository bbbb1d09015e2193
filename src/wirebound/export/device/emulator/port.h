/* What the program that trains needs of the machine it runs on: a stream in, a stream out, a clock, its own stack. */
#ifndef WB_PORT_H
#define WB_PORT_H

#include <stdint.h>

void port_open(void);
void port_read(void *bytes, uint32_t size); /* ends the program where the stream ends */
void port_write(const void *bytes, uint32_t size);
void port_flush(void);
void port_exit(int code);
uint32_t port_ticks(void);       /* a clock that counts up, modulo 2^24 */
uint32_t port_calibrate(void);   /* ticks of 2^20 instructions; 0: not known */
uint32_t port_stack_used(void);  /* bytes, at most so far; 0: not known */
uint32_t port_static_used(void); /* bytes of variables; 0: not known */

#endif
