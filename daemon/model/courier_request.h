/*
 * courier_request.h - inside the courier: one request, between the server's socket and
 * the provider's connection.
 */
#ifndef DAEMON_MODEL_COURIER_REQUEST_H
#define DAEMON_MODEL_COURIER_REQUEST_H

#include "common/buf.h"
#include "daemon/model/courier.h"
#include "daemon/model/models.h"
#include "daemon/model/redact.h"

#include <curl/curl.h>
#include <stdbool.h>

#define COURIER_OUT_MAX \
	((size_t)1 << 18) /* bytes that wait for the server; more pause the provider */

/* What all requests share. */
struct courier {
	const struct courier_conf *conf;
	char keys[MODELS_MAX][ENDPOINT_KEY_MAX + 1];
	char mcp_keys[COURIER_MCP_MAX][ENDPOINT_KEY_MAX + 1];
	char *authorities; /* certificates, PEM */
	size_t authorities_len;
	CURLM *multi;
};

enum courier_state {
	COURIER_READING, /* the body is not here yet */
	COURIER_RUNNING, /* curl has it */
	COURIER_ENDING,  /* what waits for the server is still to be written */
	COURIER_OVER,    /* to be freed */
};

struct courier_request {
	const struct courier *courier;
	enum courier_state state;
	int fd;
	struct courier_ask ask;
	size_t ask_len; /* bytes of it that are here */
	struct buf body;
	struct buf out;
	struct redact redact;
	CURL *easy;
	struct curl_slist *headers;
	char why[CURL_ERROR_SIZE];
	bool head_sent;
	bool paused;
};

/* Takes fd. NULL without memory. */
struct courier_request *courier_request_new(const struct courier *c, int fd);
void courier_request_free(struct courier_request **at);

/* Its socket is readable, writable or closed: take, give, or stop. */
void courier_request_read(struct courier_request *r);
void courier_request_write(struct courier_request *r);

/* curl is done with it. */
void courier_request_done(struct courier_request *r, CURLcode result);

#endif
