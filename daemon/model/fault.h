/*
 * fault.h - the ways in which a model can fail, and which of them may pass by themselves.
 */
#ifndef DAEMON_MODEL_FAULT_H
#define DAEMON_MODEL_FAULT_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

enum model_code {
	MODEL_FAILED = ERR_PROGRAM_BASE + 300, /* it gave no usable answer; text says why */
	MODEL_CANCELLED,
	MODEL_BUSY,        /* too many requests, overload, a fault of the provider's own */
	MODEL_UNREACHABLE, /* no connection */
	MODEL_CUT,         /* the connection ended before the answer did */
	MODEL_STALLED,     /* nothing of the answer came for too long */
	MODEL_MALFORMED,   /* what came is not of its format */
	MODEL_EMPTY,       /* an answer without text and without a call */
	MODEL_DENIED,      /* key, account or quota */
	MODEL_REJECTED,    /* the provider does not take the request */
	MODEL_CONTEXT,     /* the conversation is longer than the model's context */
	MODEL_TOO_LONG,    /* the answer has more bytes than were asked for */
};

/* The same request may succeed later. */
bool fault_passes(int code);

/* What a provider says about an error of its own; NULL where it says nothing. */
struct fault_report {
	int status; /* HTTP; 0 = inside a stream that began well */
	const char *type;
	const char *code;
	const char *message;
};

/*
 * Always -1, with one of the codes above and a text for the tenant of bounded length.  The
 * provider's own words are in it for MODEL_CONTEXT and MODEL_REJECTED; else they are logged.
 */
int fault_set(const struct fault_report *r, struct err *e);

/* As fault_set() from the body of an answer with an HTTP status other than 2xx. */
int fault_read(int status, const char *body, size_t len, struct err *e);

struct json;

/* As fault_set() from {"type","code","message"}, or something of another type. */
int fault_object(int status, const struct json *error, struct err *e);

#endif
