/*
 * net.h - what the load generators share: loopback connections, HTTP as bytes, figures.
 *
 * They are tools for measuring, not parts of the product: whatever goes wrong ends them with
 * a message and exit status 1.
 */
#ifndef BENCH_NET_H
#define BENCH_NET_H

#include "common/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

no_return void die(const char *fmt, ...) printf_like(1, 2);

/* A number of the command line, at least one. */
unsigned int number(const char *text);

/* As many descriptors as this process may have. */
void raise_descriptors(void);

/* A connection to 127.0.0.1 that sends at once. */
int dial(unsigned int port);

void send_all(int fd, const char *data, size_t len);

struct request {
	const char *method, *path, *token;
	const char *body; /* JSON, or NULL */
};

/* Send it; the answer is not awaited. */
void send_request(int fd, const struct request *r);

struct answer {
	int status;
	size_t len;
	char body[65536]; /* NUL-terminated */
};

/* How long the whole answer at the beginning of data is; 0 = not all of it is there. */
size_t answer_length(const char *data, size_t len, struct answer *ret);

/* Wait for it. */
void read_answer(int fd, struct answer *ret);

/* An open event stream, behind its first comment. */
int open_stream(unsigned int port, const char *token);

/* The text value of "key" in JSON that the daemon wrote; false = it has none. */
bool json_text(const char *json, const char *key, char *ret, size_t size);

/* -- figures: microseconds, printed as one member of a JSON object ------------------- */
struct figures {
	const char *name;
	uint64_t *us;
	size_t n, max;
};

void figures_new(struct figures *f, const char *name, size_t max);
void figures_add(struct figures *f, uint64_t us);

/* {"name":[...],...} on a line of its own, and forget them. */
void figures_print(struct figures *all, size_t n);

#endif
