/*
 * confine.h - the server process gives up what it will never need.
 *
 * Powers on entry: those of any process of the service user.  Kept: the descriptors
 * that it has, memory and threads of its own, stream sockets (a local one to
 * PostgreSQL, one to listen on), time and random bytes.  Given up for good:
 *
 *  - starting programs, and memory that is writable first and executable later;
 *  - every file: none can be opened, listed, made or changed, not even its own
 *    registry, which was read before (Landlock, and again seccomp);
 *  - other processes: ptrace, their memory, signals to anybody but itself;
 *  - namespaces, mounts, modules, keys, tracing, io_uring: trying one of these kills;
 *  - sockets of other families (kills) and kinds, TCP to anywhere, other ports;
 *  - being read by a debugger of the same user, and core files.
 *
 * Kept although it could be misused: connecting to local sockets that the user may
 * reach, and whatever PostgreSQL lets the server's roles do.
 *
 * A filter cannot be taken off.  Landlock and seccomp bind the thread that asks and
 * those that it starts later, so confine_self() refuses to run beside another thread.
 */
#ifndef DAEMON_CONFINE_CONFINE_H
#define DAEMON_CONFINE_CONFINE_H

#include "common/attr.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a system call comes to that is neither on the list nor one of those that kill. */
enum confine_mode {
	CONFINE_ENFORCE, /* EPERM, and a record in the kernel's log (audit type 1326) */
	CONFINE_KILL,    /* the process dies with SIGSYS: shows what is missing on the list */
};

struct confine_conf {
	enum confine_mode mode;
	uint16_t port;      /* the one TCP port that can be bound; 0 = any free one */
	bool need_landlock; /* fail without it; otherwise its absence is a warning */
};

/*
 * Everything below, in order; logs what holds.  To be called by the only thread, with
 * no_new_privs set, once nothing else needs more.  After a failure the process may be
 * confined in part, and must end.
 */
int confine_self(const struct confine_conf *conf, struct err *e) must_check;

/* The parts. */

/* Not dumpable, no core file, no writable memory that becomes executable. */
int confine_process(struct err *e) must_check;

/*
 * No file, no signal or abstract socket outwards, no TCP but that port, as far as the
 * kernel can.  ret_abi: the version of Landlock, 0 when there is none (not an error).
 */
int confine_files(uint16_t port, int *ret_abi, struct err *e) must_check;

/* The list of system calls. */
int confine_calls(enum confine_mode mode, struct err *e) must_check;

/*
 * The same for the process that speaks to providers (daemon/model/courier.h), which keeps
 * what the server gives up for it: TCP to these ports (to all ports below version 4 of
 * Landlock), datagrams to anywhere, and reading what name service reads.  It gives up
 * listening and local sockets instead.
 */
int confine_courier(enum confine_mode mode, const uint16_t *ports, size_t n, struct err *e)
	must_check;

int confine_courier_calls(enum confine_mode mode, struct err *e) must_check;

/*
 * And for the one that speaks to a PostgreSQL elsewhere (daemon/link/link.h): as the courier
 * with that port alone, and it takes connections from a listener that it has already.
 */
int confine_link(enum confine_mode mode, uint16_t port, struct err *e) must_check;

int confine_link_calls(enum confine_mode mode, struct err *e) must_check;

/* The files and ports of both. */
int confine_outward_files(const uint16_t *ports, size_t n, int *ret_abi, struct err *e) must_check;

#endif
