#include "common/id.h"

#include "common/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void random_bytes(void *data, size_t len)
{
	char *p = data;

	while (len > 0) {
		ssize_t n = getrandom(p, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			abort();
		p += n;
		len -= (size_t)n;
	}
}

#define TICKS_A_MS 4096

/*
 * The 12 bits after the version are a fraction of the millisecond (RFC 9562, method 3), so
 * that ids made one after the other sort that way.  A counter would do the same, and would
 * tell everybody who gets an id how many others were made in that millisecond.  While the
 * clock is behind, because it was set back, nothing but steps are left: then of random width.
 */
static uint64_t next_tick(unsigned char noise)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static uint64_t last;
	uint64_t ns = clock_wall_ns(), ms = ns / 1000000;
	uint64_t now = ms * TICKS_A_MS + ns % 1000000 * TICKS_A_MS / 1000000;

	pthread_mutex_lock(&lock);
	if (now <= last)
		now = last + 1 + (last - now > TICKS_A_MS ? noise : 0);
	last = now;
	pthread_mutex_unlock(&lock);
	return now;
}

struct uuid uuid_from(const unsigned char random[UUID_RANDOM])
{
	struct uuid id;
	unsigned char b[UUID_RANDOM];
	uint64_t tick;
	size_t at = 0;

	memcpy(b, random, sizeof(b));
	tick = next_tick(b[0]);
	for (int i = 0; i < 6; i++)
		b[i] = (unsigned char)(tick >> (52 - 8 * i));
	b[6] = (unsigned char)(0x70 | (tick >> 8 & 0xf));
	b[7] = (unsigned char)tick;
	b[8] = (unsigned char)(0x80 | (b[8] & 0x3f));
	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			id.text[at++] = '-';
		id.text[at++] = "0123456789abcdef"[b[i] >> 4];
		id.text[at++] = "0123456789abcdef"[b[i] & 15];
	}
	id.text[at] = '\0';
	return id;
}

struct uuid uuid_new(void)
{
	unsigned char random[UUID_RANDOM];

	random_bytes(random, sizeof(random));
	return uuid_from(random);
}

static bool is_lower_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

bool uuid_valid(const char *text, size_t len)
{
	if (len != UUID_TEXT_LEN)
		return false;
	for (size_t i = 0; i < len; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (dash ? text[i] != '-' : !is_lower_hex(text[i]))
			return false;
	}
	return true;
}

bool uuid_parse(const char *text, struct uuid *ret)
{
	if (!uuid_valid(text, strlen(text)))
		return false;
	memcpy(ret->text, text, UUID_TEXT_LEN + 1);
	return true;
}

void uuid_hex(const struct uuid *id, char ret_hex[33])
{
	size_t at = 0;

	for (size_t i = 0; i < UUID_TEXT_LEN; i++)
		if (id->text[i] != '-')
			ret_hex[at++] = id->text[i];
	ret_hex[at] = '\0';
}

bool uuid_equal(const struct uuid *a, const struct uuid *b)
{
	return memcmp(a->text, b->text, UUID_TEXT_LEN) == 0;
}

uint32_t uuid_hash(const struct uuid *id)
{
	uint32_t h = 2166136261U; /* FNV-1a */

	for (const char *p = id->text; *p; p++)
		h = (h ^ (unsigned char)*p) * 16777619U;
	return h;
}
