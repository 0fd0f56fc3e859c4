/*
 * report.h - the doctor's lines, one a check, on standard output:
 *
 *   ok      NAME                 what was found
 *   failed  NAME                 what is wrong; what to do
 *   n/a     NAME                 why it does not apply here
 *
 * Two processes write them, so the count of failures is shared between them.
 */
#ifndef DAEMON_DOCTOR_REPORT_H
#define DAEMON_DOCTOR_REPORT_H

#include "common/err.h"

#include <stdbool.h>

struct report; /* shared with every process that is forked afterwards */

int report_open(struct report **ret, struct err *e) must_check;
void report_close(struct report **r);

/* Each is one line; a line break in the text becomes a blank. */
void report_ok(struct report *r, const char *name, const char *fmt, ...) printf_like(3, 4);
void report_failed(struct report *r, const char *name, const char *fmt, ...) printf_like(3, 4);
void report_na(struct report *r, const char *name, const char *fmt, ...) printf_like(3, 4);

unsigned int report_failures(const struct report *r);

/* Whether this process or another one has reported a check of that name. */
bool report_has(const struct report *r, const char *name);

#endif
