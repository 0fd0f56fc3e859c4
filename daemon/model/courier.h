/*
 * courier.h - the process that speaks to providers.
 *
 * The server faces tenants, and so it has no key, no connection out and no name service.
 * The courier has these and nothing else: it takes a request's body and the number of a
 * model from the server, adds address and key, and hands back what comes, byte for byte
 * but for the key, which it blots out.  It cannot be told another address.
 *
 * Powers on entry: those of the server before it is confined.  Kept: TCP to the ports of
 * the declared models, of proxies and of name servers; datagrams for name service; the few
 * files that name service reads.  Given up: programs, other files, listening, local sockets
 * and so the database, other processes (confine_courier()).  It ends with the server.
 *
 * Each request has a stream socket of its own, whose other end the server holds: a struct
 * courier_ask and the body go in, pieces come out, and closing it closes the connection to
 * the provider at once.
 */
#ifndef DAEMON_MODEL_COURIER_H
#define DAEMON_MODEL_COURIER_H

#include "common/err.h"
#include "daemon/confine/confine.h"
#include "daemon/model/models.h"

#include <stdint.h>

#define COURIER_REQUESTS_MAX 1024
#define COURIER_THREADS_MAX  48    /* that look names up, abandoned ones included */
#define COURIER_PIECE_MAX    16384 /* bytes */

struct courier_ask {
	uint32_t model; /* its place in the file */
	uint32_t len;   /* of the body that follows; at most PROMPT_BYTES_MAX */
};

enum courier_piece_kind {
	COURIER_HEAD = 1, /* struct courier_head; once, before any BODY */
	COURIER_BODY,     /* bytes */
	COURIER_END,      /* struct courier_end; the last */
};

struct courier_piece {
	uint32_t kind;
	uint32_t len; /* of what follows; at most COURIER_PIECE_MAX */
};

struct courier_head {
	int32_t status;      /* HTTP */
	int32_t retry_after; /* seconds; -1 = not said */
	int32_t is_stream;   /* by its Content-Type */
};

struct courier_end {
	int32_t code; /* 0, or one of fault.h */
	char text[256];
};

/*
 * Fork the courier, which reads the keys, confines itself and reports that it is ready.
 * To be called by a process with one thread that is not confined yet.  *ret_sock is where
 * courier_open() sends requests; it stays open as long as the courier shall live.
 */
int courier_start(const struct models *models, enum confine_mode mode, int *ret_sock, struct err *e)
	must_check;

#endif
