/* clock.h - the two clocks: monotonic for every deadline, wall for what people read. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Milliseconds since some fixed moment; never steps back. */
uint64_t clock_mono_ms(void);

/* The same in microseconds. */
uint64_t clock_mono_us(void);

/* Milliseconds since the Unix epoch. */
uint64_t clock_wall_ms(void);

/* The same in nanoseconds. */
uint64_t clock_wall_ns(void);

#define CLOCK_TEXT_SIZE 32

/* RFC 3339 in UTC with milliseconds: "2026-01-31T12:00:00.123Z". */
void clock_format(uint64_t wall_ms, char ret_text[CLOCK_TEXT_SIZE]);

/* Milliseconds left until a monotonic deadline, for poll(2): 0 when passed; deadline 0 = -1
 * (forever). */
int clock_left_ms(uint64_t deadline_ms);

#endif
