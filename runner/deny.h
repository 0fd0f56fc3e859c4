/*
 * deny.h - IPv4 addresses, first of all those that a sandbox must not reach, as sorted
 * disjoint spans.
 */
#ifndef RUNNER_DENY_H
#define RUNNER_DENY_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DENY_MAX 1024 /* spans; a host with more local addresses is refused */

/* Addresses in host byte order, both ends included. */
struct deny_span {
	uint32_t first;
	uint32_t last;
};

/* Ascending, and neither overlapping nor touching. */
struct deny {
	struct deny_span spans[DENY_MAX];
	size_t n;
};

/* Start with the special-purpose and private ranges, which nobody may reach without being told. */
void deny_init_special(struct deny *d);

/* Start with the addresses at which clouds keep their metadata, all link-local ones among them. */
void deny_init_metadata(struct deny *d);

/*
 * Start with what cannot be another machine's: this network, loopback, multicast,
 * reserved, and the small network that the sandbox itself is in.
 */
void deny_init_nobody(struct deny *d);

/*
 * Add a span, merging.  Returns 1 when the set grew, 0 when it held the span
 * already, -1 (ENOSPC) when it would have more than DENY_MAX spans.
 */
int deny_add(struct deny *d, uint32_t first, uint32_t last, struct err *e) must_check;

/* As deny_add() for addr/len, len from 0 to 32; bits of addr beyond len are ignored. */
int deny_add_prefix(struct deny *d, uint32_t addr, unsigned int len, struct err *e) must_check;

bool deny_has(const struct deny *d, uint32_t addr);

#endif
