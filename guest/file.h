/*
 * file.h - the calls that read, write and list files of the sandbox.
 *
 * Nothing here blocks on what a path names: only regular files are opened for
 * their content, and each step of a call is bounded.
 */
#ifndef GUEST_FILE_H
#define GUEST_FILE_H

#include "guest/call.h"

/* NULL when the call is over before it began, for the reason in e. */
struct call *file_read_start(const struct json *request, struct err *e);
struct call *file_write_start(const struct json *request, struct err *e);
struct call *file_list_start(const struct json *request, struct err *e);
struct call *file_change_start(const struct json *request, struct err *e);

/* A number of a request, within bounds (both included), or its default. */
struct file_number {
	const char *name;
	int64_t min;
	int64_t max;
	int64_t value; /* in: default, out: what was asked for */
};

/*
 * Check a request of the shape {"op", "path", numbers...}, n <= 2.  *ret_path is
 * absolute, at most 4,096 bytes, and borrowed from the request.
 */
int file_request(const struct json *request, struct file_number *numbers, size_t n,
                 const char **ret_path, struct err *e) must_check;

#endif
