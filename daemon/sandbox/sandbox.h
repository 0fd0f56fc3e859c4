/*
 * sandbox.h - commands and files inside tenants' sandboxes.
 *
 * A tenant's sandbox starts on the first call that needs it and stops when it was
 * idle for long enough.  Calls block the calling thread until they end; one link
 * thread moves the frames of all sandboxes.  Nothing here ever runs a command or
 * opens a file of a tenant on the host: when the sandbox cannot start, the call
 * fails with SANDBOX_START_FAILED.  What a guest says is checked, bounded and
 * never trusted.  Thread-safe.
 */
#ifndef DAEMON_SANDBOX_SANDBOX_H
#define DAEMON_SANDBOX_SANDBOX_H

#include "common/cancel.h"
#include "common/err.h"
#include "common/id.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sandbox_code {
	SANDBOX_START_FAILED = ERR_PROGRAM_BASE + 100, /* text: the runner's reason */
	SANDBOX_LOST,      /* it died, or broke the protocol, during a file call */
	SANDBOX_CANCELLED, /* a file call, or waiting for the start, was cancelled */
	SANDBOX_STOPPING,  /* the daemon ends */
	SANDBOX_LIMIT,     /* as many sandboxes run as may; nothing was run, try again later */
	SANDBOX_NO_ROOM,   /* the disk is too full to start one; likewise */
	SANDBOX_OOM,       /* its memory limit ended it during a file call */
	SANDBOX_PIDS,      /* its limit of host tasks ended it during a file call */
	SANDBOX_DISK_FULL, /* it was ended because the disk became too full, likewise */
	/* what the guest answered (docs/protocol.md); nothing was run or written */
	SANDBOX_NOT_FOUND,
	SANDBOX_NOT_EXECUTABLE,
	SANDBOX_NO_CWD,
	SANDBOX_NOT_A_FILE,
	SANDBOX_NOT_A_DIRECTORY,
	SANDBOX_DENIED,
	SANDBOX_EXISTS,
	SANDBOX_NO_SPACE,
	SANDBOX_TOO_LARGE,
	SANDBOX_INVALID,
	SANDBOX_CHANGED, /* the file is another one than was expected */
	SANDBOX_BUSY,    /* too many calls open on this sandbox */
	SANDBOX_AGAIN,   /* process limit of the sandbox reached */
	SANDBOX_IO,
};

struct sandboxes;
struct launcher_message;

struct sandboxes_conf {
	int launcher_sock;             /* borrowed; messages of daemon/launcher/message.h */
	unsigned int start_timeout_ms; /* from START to the guest's READY */
	unsigned int idle_ms;          /* without a call or a background process, then it stops */
	unsigned int max_active;       /* sandboxes that are not stopped; at least 1 */
	/*
	 * After so many ends of a tenant's by a fault, less one for each second, none starts; 0 =
	 * no bound.
	 */
	unsigned int max_faults;
	void (*launcher_message)(void *ctx, int op); /* for what is not about sandboxes:
	                                                LAUNCHER_DRAIN, and 0 = launcher gone,
	                                                said before any call is lost with it */
	/* An order of the launcher (daemon/launcher/message.h); takes *fd.  NULL = refuses all. */
	void (*launcher_order)(void *ctx, const struct launcher_message *m, int *fd);
	void *ctx;
};

/* Also makes the process ignore SIGPIPE: a guest that closes its input must not end it. */
int sandboxes_start(const struct sandboxes_conf *conf, struct sandboxes **ret, struct err *e)
	must_check;

/* Refuse new calls, end open ones as lost, close every sandbox's input, join the thread, free. */
void sandboxes_stop(struct sandboxes **s);

/* Stop those whose tenant fn names; their open calls are lost.  fn must not call this folder. */
void sandboxes_end(struct sandboxes *s, bool (*fn)(void *ctx, const struct uuid *tenant),
                   void *ctx);

struct sandbox_view {
	struct uuid tenant;
	uint64_t generation;
	const char *state;  /* "starting", "running", "ending" */
	uint64_t age_ms;    /* since its start was asked for */
	uint64_t idle_ms;   /* without a call; 0 while one is open */
	unsigned int calls; /* open, but for those that rest */
};

/* Those that are not stopped, at most max; how many. */
size_t sandboxes_view(struct sandboxes *s, struct sandbox_view *ret, size_t max);

/* How many sandboxes run now. */
size_t sandboxes_running(struct sandboxes *s);

/* For whom a call is made, and what may end it early; all borrowed. */
struct sandbox_use {
	struct sandboxes *sandboxes;
	const struct uuid *tenant;
	struct cancel *cancel; /* NULL = cannot be cancelled */
	/*
	 * No other call runs meanwhile, and none has run in the sandbox before: it waits for
	 * those that are open, then the sandbox is started anew unless nothing has used it,
	 * and those that come wait for its end.  SANDBOX_BUSY when the open ones do not end.
	 * Commands in the background, and what else was left running, end with the old one.
	 */
	bool alone;
};

/* Takes output as it comes, in the thread that made the call.  stream: 1 or 2. */
struct output_sink {
	void (*take)(void *ctx, int stream, const char *data, size_t len);
	void *ctx;
};

enum exec_reason {
	EXEC_EXITED,
	EXEC_TIMEOUT,
	EXEC_CANCELLED,
	EXEC_LOST,      /* the sandbox ended under it; never reported with a code */
	EXEC_OOM,       /* likewise, and the host says why: its memory limit ... */
	EXEC_PIDS,      /* ... or its limit of host tasks ... */
	EXEC_DISK_FULL, /* ... or the disk, which is too full for any */
};

const char *exec_reason_name(enum exec_reason reason);

struct exec_spec {
	const char *const *argv; /* NULL-terminated, or NULL when shell is set */
	const char *shell;
	const char *cwd;
	uint64_t timeout_ms; /* 0 = none */
	uint64_t keep;       /* output of more bytes stays readable in the sandbox; 0 = none does */
	const char *input;   /* standard input */
	size_t input_len;
};

#define SANDBOX_OUTPUT_ID 32 /* bytes of the id of an output that is kept */

struct exec_result {
	enum exec_reason reason;
	int code;              /* exit code 0..255; -1 = none */
	int signal;            /* 0 = none */
	uint64_t stdout_bytes; /* as counted here */
	uint64_t stderr_bytes;
	unsigned int survivors;         /* processes that live on */
	char output[SANDBOX_OUTPUT_ID]; /* what sandbox_output() reads; "" = it is not kept */
};

/*
 * Run a command.  0 when it was started, whatever became
 * of it (see reason); -1 when nothing was run.
 * A cancel is answered within 2 s: by the guest, or by ending the sandbox.
 */
int sandbox_exec(const struct sandbox_use *use, const struct exec_spec *spec,
                 const struct output_sink *sink, struct exec_result *ret, struct err *e) must_check;

#define FILE_VERSION_SIZE 128

struct file_range {
	uint64_t offset;
	uint64_t limit;                  /* bytes */
	uint64_t size;                   /* out: of the file */
	uint64_t bytes;                  /* out: given to the sink */
	char version[FILE_VERSION_SIZE]; /* out: another one as soon as the file was changed */
};

int sandbox_read(const struct sandbox_use *use, const char *path, struct file_range *range,
                 const struct output_sink *sink, struct err *e) must_check;

/* Replace the file atomically; on failure the old one is untouched. */
int sandbox_write(const struct sandbox_use *use, const char *path, const char *data, size_t len,
                  struct err *e) must_check;

#define FILE_CHANGES_MAX 100

struct file_change {
	const char *path;
	bool removes; /* else data replaces it; its mode is kept */
	const char *data;
	size_t len;
	const char *expect; /* a version; "" = it is not there; NULL = whatever is there */
	const char *like;   /* a new file has the mode of this one; NULL = 0644 */
};

/*
 * Change 1 to FILE_CHANGES_MAX files, or none: SANDBOX_CHANGED when one is not what was
 * expected.  A sandbox that is lost meanwhile may leave some of them changed.
 */
int sandbox_change(const struct sandbox_use *use, const struct file_change *files, size_t n,
                   struct err *e) must_check;

struct file_listing {
	uint32_t limit;   /* entries, 1 to 10,000 */
	uint64_t entries; /* out: given to the sink */
	uint64_t total;   /* out: in the directory */
};

/* The sink gets one JSON object a line, checked to be what docs/protocol.md says. */
int sandbox_list(const struct sandbox_use *use, const char *path, struct file_listing *listing,
                 const struct output_sink *sink, struct err *e) must_check;

/* -- output that is kept, and commands in the background ------------------------------------- */

/*
 * Start a command in the background.  It runs until it ends, is stopped, has run for
 * spec->timeout_ms, or its sandbox ends.  SANDBOX_BUSY: as many run as may.
 */
int sandbox_background(const struct sandbox_use *use, const struct exec_spec *spec,
                       char ret_id[SANDBOX_OUTPUT_ID], struct err *e) must_check;

/* What the guest says of a command; nothing of it is to be trusted. */
struct command_state {
	bool running;
	uint64_t total;    /* bytes of output so far */
	char reason[32];   /* of a background command's end; "" = none is known */
	int code;          /* -1 = none */
	int signal;        /* 0 = none */
	char message[256]; /* why nothing was run; "" = it was */
};

struct output_range {
	uint64_t offset;
	uint64_t limit;
	uint64_t wait_ms; /* for output from offset on, or the command's end; at most 60,000 */
	uint64_t start;   /* out: offset of the first byte given; later when that is not kept */
	uint64_t bytes;   /* out: given to the sink */
	uint64_t gap_from, gap_to;  /* out: what is not kept */
	struct command_state state; /* out */
};

/* SANDBOX_NOT_FOUND: there is no such output, or not any more. */
int sandbox_output(const struct sandbox_use *use, const char *id, struct output_range *range,
                   const struct output_sink *sink, struct err *e) must_check;

/* Write to a background command, and perhaps end its input.  SANDBOX_BUSY: it does not read. */
int sandbox_input(const struct sandbox_use *use, const char *id, const char *data, bool end,
                  struct err *e) must_check;

/* Kill it with all it started, and wait until that is gone. */
int sandbox_stop_command(const struct sandbox_use *use, const char *id, struct command_state *ret,
                         struct err *e) must_check;

/* Calls fn for each background command, the newest first, at most 32 of them. */
int sandbox_commands(const struct sandbox_use *use,
                     void (*fn)(void *ctx, const char *id, const char *command,
                                const struct command_state *state),
                     void *ctx, struct err *e) must_check;

#endif
