/*
 * prepared.h - which statements a connection has prepared.
 *
 * The server plans a statement anew each time it gets its text, which for most of ours takes
 * longer than executing it.  So one that comes a second time on the same connection is
 * prepared; one that comes once, as on a connection that many tenants share, costs nothing
 * more.
 */
#ifndef DAEMON_STORE_PREPARED_H
#define DAEMON_STORE_PREPARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More than there are; what is beyond is sent as text each time. */
#define PREPARED_MAX 128

struct prepared {
	char *sql;
	const char *from; /* where that text stood last; never read */
	uint32_t bytes;   /* parameters with the type of bytes, a bit each */
	bool again;       /* came before */
	bool ready;       /* the server has it, by its number */
};

struct prepared_set {
	struct prepared all[PREPARED_MAX];
	size_t n;
};

/* The statement, whose second coming is noted; NULL when there is no room for it. */
struct prepared *prepared_use(struct prepared_set *set, const char *sql, uint32_t bytes);

#define PREPARED_NAME_SIZE 16

/* What the server calls it. */
void prepared_name(const struct prepared_set *set, const struct prepared *p,
                   char ret[PREPARED_NAME_SIZE]);

void prepared_release(struct prepared_set *set);

#endif
