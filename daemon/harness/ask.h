/*
 * ask.h - what a harness asks a person: the data of a notify of the kind "ask".
 *
 * {"kind":"ask","questions":[{"question"|"text", "options":[text | {"label"}]}],"ask_id"} or
 * {"kind":"confirm","prompt","ask_id"}.  Everything is borrowed from the data.
 */
#ifndef DAEMON_HARNESS_ASK_H
#define DAEMON_HARNESS_ASK_H

#include "common/err.h"
#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>

#define ASK_QUESTIONS_MAX 16
#define ASK_OPTIONS_MAX   99 /* "custom" is added to them */
#define ASK_ID_MAX        64 /* bytes */

/* What the harness's own side says for a question that nobody answered, and to a confirm. */
#define ASK_UNANSWERED "Unanswered"
#define ASK_YES        "yes"
#define ASK_NO         "no"

struct ask {
	const char *id; /* NULL = none */
	bool confirm;
	size_t count;                 /* of questions; 1 for a confirm */
	const struct json *questions; /* NULL for a confirm */
	const char *prompt;           /* of a confirm */
};

/* -1: it cannot be shown to a person as it is. */
int ask_read(const struct json *data, struct ask *ret, struct err *e) must_check;

/* Text of a question, i below count. */
const char *ask_text(const struct ask *a, size_t i);

/* The options that a person is offered, owned by the caller: yes and no, or labels and "custom". */
struct json *ask_options(const struct ask *a, size_t i);

/* What to answer when nobody did. */
const char *ask_default(const struct ask *a);

#endif
