/*
 * cancel.h - one-way "stop now", visible to poll(2).
 *
 * Whoever blocks on behalf of a turn polls cancel_fd() beside its own descriptor.
 * Once fired it stays readable.
 */
#ifndef COMMON_CANCEL_H
#define COMMON_CANCEL_H

#include "common/err.h"

#include <stdbool.h>

struct cancel {
	int fd; /* eventfd; readable once fired */
};

int cancel_init(struct cancel *c, struct err *e) must_check;
void cancel_release(struct cancel *c);
void cancel_fire(struct cancel *c); /* any thread, any number of times */
bool cancel_fired(const struct cancel *c);

#endif
