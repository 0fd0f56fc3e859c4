/*
 * cancel.h - one-way "stop now", visible to poll(2).
 *
 * Whoever blocks on behalf of a turn polls fd beside its own descriptor.  Once fired it
 * stays readable.  What only waits in a queue needs no descriptor yet: it can be fired all
 * the same.
 */
#ifndef COMMON_CANCEL_H
#define COMMON_CANCEL_H

#include "common/err.h"

#include <stdatomic.h>
#include <stdbool.h>

struct cancel {
	int fd; /* eventfd; readable once fired; -1 = not open, which poll(2) passes over */
	atomic_bool fired;
};

#define CANCEL_INIT      \
	{                \
		.fd = -1 \
	}

/* CANCEL_INIT and cancel_open(). */
int cancel_init(struct cancel *c, struct err *e) must_check;

/*
 * From now on it can be polled; one that has fired is readable at once.  ERR_SHORTAGE leaves
 * it as it was.  Not while another thread may fire it.
 */
int cancel_open(struct cancel *c, struct err *e) must_check;

void cancel_release(struct cancel *c);
void cancel_fire(struct cancel *c); /* any thread, any number of times */
bool cancel_fired(const struct cancel *c);

#endif
