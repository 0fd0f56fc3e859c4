/*
 * courier_client.h - the server's end of a request to the courier.
 */
#ifndef DAEMON_MODEL_COURIER_CLIENT_H
#define DAEMON_MODEL_COURIER_CLIENT_H

#include "common/cancel.h"
#include "common/err.h"
#include "daemon/model/courier.h"

#include <stddef.h>
#include <stdint.h>

#define COURIER_GONE_MS 10000 /* that the end of a server whose courier is gone may take */

/* How long a wait may take. */
struct courier_wait {
	const struct cancel *cancel;
	uint64_t deadline_ms; /* monotonic */
};

struct courier_reply {
	struct courier_piece piece;
	union {
		struct courier_head head;
		struct courier_end end;
		char body[COURIER_PIECE_MAX];
	};
};

/*
 * Ask a model; sock is that of courier_start().  *ret_fd is the request, and closing it
 * gives it up.  Codes here and below: MODEL_CANCELLED, MODEL_STALLED at the deadline,
 * MODEL_UNREACHABLE when the courier takes no request, MODEL_FAILED when it is gone and
 * nobody has cancelled within COURIER_GONE_MS.
 */
int courier_open(int sock, const struct courier_ask *ask, const char *body,
                 const struct courier_wait *w, int *ret_fd, struct err *e) must_check;

/* The next piece. */
int courier_next(int fd, const struct courier_wait *w, struct courier_reply *ret, struct err *e)
	must_check;

#endif
