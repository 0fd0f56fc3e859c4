/*
 * err.h - the one error shape.
 *
 * A function that can fail returns 0 or -1 and takes a struct err as its last
 * argument, which it fills only when it fails.  Callers add context while the
 * error travels up and log it once, at the top.  An err owns no memory: put it
 * on the stack, initialised with ERR_INIT.
 */
#ifndef COMMON_ERR_H
#define COMMON_ERR_H

#include "common/attr.h"

#include <stdbool.h>

/* Codes from here on belong to the program that defines them; below are errno values. */
#define ERR_PROGRAM_BASE 1000

/*
 * Descriptors or memory are short.  Nothing was done, and the same may succeed as soon as
 * somebody gives some back: who may wait tries again, who may not says "later".
 */
#define ERR_SHORTAGE 999

struct err {
	int code;       /* errno value, or a program's own code; 0 = no error */
	char text[500]; /* one line, NUL-terminated; cut at the end when longer */
};

#define ERR_INIT          \
	{                 \
		.code = 0 \
	}

/* Fill e with code and message.  Always returns -1, so that it can end a function. */
int err_set(struct err *e, int code, const char *fmt, ...) printf_like(3, 4);

/* As err_set, with errno as the code and ": <strerror>" appended. */
int err_errno(struct err *e, const char *fmt, ...) printf_like(2, 3);

/* EMFILE, ENFILE, ENOBUFS and ENOMEM. */
bool err_is_shortage(int code);

/* As err_errno, but ERR_SHORTAGE is the code of what err_is_shortage(). */
int err_shortage(struct err *e, const char *fmt, ...) printf_like(2, 3);

/* Put "<context>: " before the message.  Keeps the code.  Always returns -1. */
int err_wrap(struct err *e, const char *fmt, ...) printf_like(2, 3);

#endif
