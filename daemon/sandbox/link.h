/*
 * link.h - the one thread that moves frames (inside this folder only).
 */
#ifndef DAEMON_SANDBOX_LINK_H
#define DAEMON_SANDBOX_LINK_H

#include "daemon/sandbox/pool.h"

/* Open what the thread needs; on failure nothing is left open. */
int link_open(struct sandboxes *pool, struct err *e) must_check;
void link_close(struct sandboxes *pool);

/* pthread start routine; arg is the pool.  Returns once the pool stops and every runner is gone, or
 * time is up. */
void *link_run(void *arg);

/* Make the thread look at all sandboxes now.  Any thread. */
void link_wake(struct sandboxes *pool);

/* (locked) Start and stop waiting for room towards a guest; true on success. */
bool link_watch_out(struct sandbox *sb, bool on);

/* (locked) Read from a guest from now on. */
bool link_watch_in(struct sandbox *sb);

#endif
