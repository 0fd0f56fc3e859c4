/*
 * courier.h - the process that speaks to providers of models and to MCP servers.
 *
 * The server faces tenants, and so it has no key, no connection out and no name service.
 * The courier has these and nothing else: it takes a request's body and the number of a
 * model or an MCP server from the server, adds address and key, and hands back what comes,
 * byte for byte but for the key, which it blots out.  It cannot be told another address,
 * and it understands nothing of what it carries.
 *
 * Powers on entry: those of the server before it is confined.  Kept: TCP to the ports of
 * what is declared, of proxies and of name servers; datagrams for name service; the few
 * files that name service reads.  Given up: programs, other files, listening, local sockets
 * and so the database, other processes (confine_courier()).  It ends with the server.
 *
 * Between the two stands a keeper, which starts another courier when one dies; it has no key
 * (daemon/launcher/keeper.h).
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
#define COURIER_MCP_MAX      32

#define COURIER_SESSION_MAX 256 /* bytes of the id of an MCP session; visible ASCII */
#define COURIER_VERSION_MAX 15  /* bytes of a version of MCP: digits and "-" */

enum courier_to {
	COURIER_TO_MODEL,
	COURIER_TO_MCP,     /* POST */
	COURIER_TO_MCP_END, /* DELETE: the session is over; the body is not sent */
};

struct courier_ask {
	uint32_t place; /* its place in the file */
	uint32_t len;   /* of the body that follows, 1 to PROMPT_BYTES_MAX */
	uint32_t to;
	char session[COURIER_SESSION_MAX + 1]; /* of MCP; "" = none */
	char version[COURIER_VERSION_MAX + 1]; /* likewise */
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
	int32_t is_json;
	int32_t session_unfit;                 /* an MCP session was given that cannot be named */
	char session[COURIER_SESSION_MAX + 1]; /* that was given; "" = none */
};

struct courier_end {
	int32_t code; /* 0, or one of fault.h */
	char text[256];
};

struct courier_conf {
	const struct models *models; /* NULL = none */
	const struct endpoint *mcp;  /* MCP servers */
	size_t mcp_count;            /* at most COURIER_MCP_MAX */
	enum confine_mode mode;
};

/*
 * Fork the keeper and with it the courier, which reads the keys, confines itself and reports
 * that it is ready.
 * To be called by a process with one thread that is not confined yet.  *ret_sock is where
 * courier_open() sends requests; it stays open as long as the courier shall live.
 */
int courier_start(const struct courier_conf *conf, int *ret_sock, struct err *e) must_check;

#endif
