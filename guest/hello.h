/*
 * hello.h - the first frame that a guest is sent.
 */
#ifndef GUEST_HELLO_H
#define GUEST_HELLO_H

#include "common/err.h"
#include "common/frame.h"
#include "common/id.h"

#include <stddef.h>

struct hello {
	struct uuid tenant;
	size_t processes; /* of the tenant, at least 1 */
};

/* FAULT_INVALID when it is not the HELLO of our version; *ret is untouched then. */
int hello_read(const struct frame *f, struct hello *ret, struct err *e) must_check;

#endif
