/*
 * loop.h - the one event loop of the guest.
 *
 * A source is a descriptor with a function that is called when it is ready.  It
 * is embedded in its owner (use source_owner() to get back) and may be closed,
 * and its owner freed, from inside any ready function: events of a closed source
 * that wait in the same batch are dropped.
 */
#ifndef GUEST_LOOP_H
#define GUEST_LOOP_H

#include <stddef.h>
#include <stdint.h>

struct source {
	int fd;           /* owned; -1 = closed */
	uint32_t watched; /* epoll events waited for; 0 = none */
	void (*ready)(struct source *s, uint32_t events);
};

#define source_owner(s, type, member) ((type *)(void *)((char *)(s)-offsetof(type, member)))

/* Create the loop; ends the guest when that is impossible. */
void loop_open(void);
void loop_close(void);

/* Wait for events for at most timeout_ms (-1 = forever) and call the ready functions. */
void loop_wait(int timeout_ms);

void source_init(struct source *s, int fd, void (*ready)(struct source *s, uint32_t events));

/* Wait for exactly these events from now on; 0 = not even for a hang-up. */
void source_watch(struct source *s, uint32_t events);

/* Stop watching and hand the descriptor to the caller. */
int source_take(struct source *s);

void source_close(struct source *s);

#endif
