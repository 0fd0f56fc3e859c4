/*
 * job.h - what an exec runs: from the START of the daemon to argv and envp.
 *
 * PID 1 checks the request and flattens it; the supervisor unfolds it again.
 * Flat form: the number of arguments, the number of variables (4 bytes each, host
 * order), then NUL-terminated strings: directory, arguments, variables.
 */
#ifndef GUEST_JOB_H
#define GUEST_JOB_H

#include "common/buf.h"
#include "common/err.h"
#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOB_ARGS_MAX   1024
#define JOB_ENV_MAX    256
#define JOB_FLAT_MAX   (384U << 10) /* bytes; a START is at most 256 KiB */
#define JOB_TIME_MAX   86400000     /* milliseconds */
#define JOB_PATH_MAX   4096         /* bytes of a path in the protocol */
#define JOB_SHELL      "/bin/sh"
#define JOB_BEST_SHELL "/bin/bash"

/* How an exec is run, beside what it runs. */
struct job_options {
	uint64_t timeout_ms; /* 0 = no deadline */
	bool keeps;          /* output of more than keep bytes stays readable */
	uint64_t keep;
	bool background;
	char name[200]; /* the command, perhaps cut */
};

/* Check the fields of an exec and flatten it. */
int job_from_request(const struct json *request, struct buf *flat, struct job_options *ret,
                     struct err *e) must_check;

struct job {
	const char *cwd; /* all strings borrowed from the flat form */
	char **argv;     /* NULL-terminated */
	char **envp;     /* NULL-terminated */
	char **vector;   /* owned: the memory of both */
};

#define auto_job __attribute__((cleanup(job_release)))

/* flat must be followed by a NUL and live as long as the job. */
int job_unfold(char *flat, size_t len, struct job *ret, struct err *e) must_check;

void job_release(struct job *j);

/* Value of a variable in the job's environment; NULL when it is not set. */
const char *job_getenv(const struct job *j, const char *name);

#endif
