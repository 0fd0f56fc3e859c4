#include "common/clock.h"

#include <limits.h>
#include <stdio.h>
#include <time.h>

static uint64_t read_clock(clockid_t id)
{
	struct timespec t;

	(void)clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t clock_mono_ms(void)
{
	return read_clock(CLOCK_MONOTONIC) / 1000000;
}

uint64_t clock_mono_us(void)
{
	return read_clock(CLOCK_MONOTONIC) / 1000;
}

uint64_t clock_wall_ms(void)
{
	return clock_wall_ns() / 1000000;
}

uint64_t clock_wall_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}

void clock_format(uint64_t wall_ms, char ret_text[CLOCK_TEXT_SIZE])
{
	time_t seconds = (time_t)(wall_ms / 1000);
	struct tm tm;
	size_t len;

	(void)gmtime_r(&seconds, &tm);
	len = strftime(ret_text, CLOCK_TEXT_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
	(void)snprintf(ret_text + len, CLOCK_TEXT_SIZE - len, ".%03uZ",
	               (unsigned int)(wall_ms % 1000));
}

int clock_left_ms(uint64_t deadline_ms)
{
	uint64_t now;

	if (!deadline_ms)
		return -1;
	now = clock_mono_ms();
	if (now >= deadline_ms)
		return 0;
	return deadline_ms - now > INT_MAX ? INT_MAX : (int)(deadline_ms - now);
}
