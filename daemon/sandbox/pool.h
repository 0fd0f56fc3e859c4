/*
 * pool.h - the sandboxes of all tenants and the life of each (inside this folder only).
 *
 * stopped -> starting -> running -> ending -> stopped.  A sandbox leaves "ending"
 * only when the launcher said that its runner is gone, because only then is the
 * tenant's lock free; so two generations of one tenant never overlap.
 *
 * One lock guards everything here.  Descriptors to and from a guest are closed by
 * the link thread alone, which may therefore read without the lock.  Functions
 * marked (locked) expect the lock to be held.
 */
#ifndef DAEMON_SANDBOX_POOL_H
#define DAEMON_SANDBOX_POOL_H

#include "daemon/launcher/message.h"
#include "daemon/sandbox/sandbox.h"

#include "common/buf.h"
#include "common/frame.h"
#include "common/log.h"

#include <pthread.h>
#include <stdbool.h>

#define POOL_BUCKETS   1024
#define POOL_READ_SIZE 65536 /* bytes read from one sandbox before the next one's turn */

#define OUT_MAX       ((size_t)4 << 20)   /* bytes that wait for one guest; more: it is stuck */
#define OUT_START_MAX ((size_t)1 << 20)   /* above this no new call is opened */
#define OUT_INPUT_MAX ((size_t)256 << 10) /* above this file content waits with its caller */

#define ENDING_MS       5000 /* from the end of a guest's input to KILL */
#define CAUSE_WAIT_MS   2000 /* how long a failed start waits for the runner's reason */
#define LOSS_WAIT_MS    8000 /* likewise who lost a sandbox: the runner first proves its end */
#define CANCEL_GRACE_MS 2000 /* from CANCEL, or a passed deadline, to the end of the sandbox */

#define FAULT_MS 1000 /* by then one end by a fault counts no more */

struct call;

enum sandbox_state {
	STATE_STOPPED,  /* no runner; no descriptors */
	STATE_STARTING, /* START was sent, READY is awaited */
	STATE_RUNNING,  /* calls may be open */
	STATE_ENDING,   /* no call is open, some may wait for the reason; EXITED is awaited */
};

enum source_kind {
	SOURCE_LAUNCHER,
	SOURCE_WAKE,
	SOURCE_FROM_GUEST,
	SOURCE_TO_GUEST,
};

/* What an epoll event points at. */
struct source {
	enum source_kind kind;
	struct sandbox *sb; /* of the two guest kinds */
};

struct sandbox {
	struct sandboxes *pool;
	struct uuid tenant;
	struct sandbox *next_in_bucket; /* known tenants stay known until the pool ends */
	struct sandbox *prev, *next;    /* pool->active: every sandbox that is not stopped */
	enum sandbox_state state;
	uint64_t generation;
	uint64_t begun_ms; /* monotonic: when START was sent */
	bool ran;          /* the guest was ready since then ... */
	bool used;         /* ... and a call was let in */
	struct source from_source, to_source;
	int from_guest, to_guest;
	bool to_watched;    /* epoll waits for room towards the guest */
	struct buf partial; /* link thread only: the frame that has not arrived whole */
	struct buf out;     /* frames for the guest ... */
	size_t out_done;    /* ... of which that many bytes are written */
	bool out_wanted;    /* a caller waits for the queue to become shorter */
	bool kill_wanted;   /* KILL could not be sent yet */
	uint64_t deadline;  /* starting: for READY; ending: until KILL, 0 once it was asked for */
	uint64_t cause_deadline; /* ending: until those who wait for the reason are told */
	struct err why;          /* of a failed start, as far as known here */
	struct call *waiting;    /* calls that wait for this start, or for the next one */
	struct call *doomed;     /* calls that the sandbox died under: wait for the reason */
	struct call *calls[FRAME_CALLS_MAX]; /* open calls; the slot is the low byte of their id */
	unsigned int open;
	unsigned int resting; /* of the open ones, those that are no work */
	struct call *alone;   /* it runs alone, or waits for the end of the others to do so */
	uint64_t calls_made;
	uint64_t idle_since;  /* monotonic ms, meaningful while it has no work */
	uint64_t quiet_since; /* monotonic ms of the last bytes from the guest */
	uint64_t ping_sent;   /* monotonic ms; 0 = no PING is unanswered */
	unsigned int faults;  /* ends by a fault that count still, at most conf.max_faults ... */
	uint64_t faults_ms;   /* ... as they did then, monotonic */
};

struct sandboxes {
	pthread_mutex_t lock;
	pthread_cond_t left; /* a thread left the pool */
	unsigned int inside; /* threads of callers in it */
	struct sandboxes_conf conf;
	unsigned int ping_after_ms; /* silence before a PING */
	unsigned int pong_ms;       /* time for its PONG */
	int epoll;
	int wake; /* eventfd: there is something to close or to stop */
	struct source launcher_source, wake_source;
	pthread_t thread;
	bool stopping;
	uint64_t stop_deadline;
	bool launcher_gone;
	uint64_t last_generation;
	struct sandbox *buckets[POOL_BUCKETS];
	struct sandbox *active;
	unsigned int active_count;
	struct log_pace refusals;        /* at the rate of whoever asks */
	char read_space[POOL_READ_SIZE]; /* link thread only */
};

/* (locked) Its pipes are listened to. */
static inline bool sandbox_is_live(const struct sandbox *sb)
{
	return sb->state == STATE_STARTING || sb->state == STATE_RUNNING;
}

/* (locked) A call is open that does more than rest. */
static inline bool sandbox_has_work(const struct sandbox *sb)
{
	return sb->open > sb->resting;
}

/* (locked) The sandbox of a tenant, made when it is not known yet; NULL = no memory. */
struct sandbox *pool_find(struct sandboxes *pool, const struct uuid *tenant);

/* (locked) Refuse all who wait for a sandbox, whatever its state. */
void pool_refuse(struct sandboxes *pool, int code, const char *why);

/* (locked) Let in the calls that waited for the end of others, as far as they may. */
void sandbox_admit(struct sandbox *sb);

/*
 * (locked) Send START for a stopped sandbox; when that fails, its waiters are told: by the link
 * thread when the launcher is gone.
 */
void sandbox_begin(struct sandbox *sb);

/*
 * (locked) The launcher has started the runner of a tenant that may have that many
 * processes; takes both descriptors.  Link thread.
 */
void sandbox_started(struct sandbox *sb, int to_guest, int from_guest, uint32_t processes);

/* (locked) The guest is ready: let the waiters in. */
void sandbox_ready(struct sandbox *sb);

/*
 * (locked) End it at once because something is wrong: log why, lose its calls, KILL.
 * Does nothing but make sure of the KILL when it ends already.  Any thread.
 */
void sandbox_break(struct sandbox *sb, const char *fmt, ...) printf_like(2, 3);

/*
 * (locked) Its pipes say that it is gone, in whatever way.  The runner is given
 * LOSS_WAIT_MS to say why, for those whose calls were open; then KILL.  Any thread.
 */
void sandbox_gone(struct sandbox *sb, const char *fmt, ...) printf_like(2, 3);

/* (locked) End it by the end of its input, and by KILL when that does not help. */
void sandbox_finish(struct sandbox *sb);

/* (locked) The runner is gone.  Starts the next generation when somebody waits.  Link thread. */
void sandbox_exited(struct sandbox *sb, int status, const char *cause);

/*
 * (locked) A PONG came: so many commands have left processes that live.  One that has
 * been idle for long enough, with none, ends.  Link thread.
 */
void sandbox_answered(struct sandbox *sb, uint32_t survivors);

/* (locked) Whatever is due by now: deadlines, pings, idleness, closing.  Link thread. */
void sandbox_upkeep(struct sandbox *sb, uint64_t now);

/* (locked) Queue a frame and write what the pipe takes.  A queue that overflows breaks it. */
void sandbox_put(struct sandbox *sb, enum frame_type type, uint64_t call, const void *payload,
                 size_t len);
void sandbox_put_credit(struct sandbox *sb, uint64_t call, uint32_t bytes);

/* (locked) Bytes that wait for the guest. */
size_t sandbox_backlog(const struct sandbox *sb);

/* (locked) Write what the pipe takes and watch it for the rest. */
void sandbox_flush(struct sandbox *sb);

#endif
