/*
 * context.h - what a model is told of a session: earlier turns, then the one that goes on
 * (inside this folder only).
 *
 * A summary and the earlier turns behind it are read from the store once.  What does not fit
 * into the model's context, by an estimate that is rather too high, is left out from the
 * oldest turn on, and the model is told so; so it is of turns that did not end well.
 */
#ifndef DAEMON_TURN_CONTEXT_H
#define DAEMON_TURN_CONTEXT_H

#include "daemon/model/model.h"
#include "daemon/store/earlier.h"
#include "daemon/turn/transcript.h"

#define CONTEXT_BYTES_MAX \
	((size_t)4 << 20) /* of earlier turns in memory, for each turn that runs */

struct context {
	struct summary summary; /* told instead of what it covers */
	struct earlier earlier; /* behind that */
	bool known;
	bool stuck;      /* the model made no summary: the job does without */
	bool overflowed; /* the provider said once that the context is too long */
};

/*
 * Read the earlier turns unless they are known.  The built-in model, which has no window, is
 * shown its turn alone.  Codes as of session_earlier().
 */
int context_read(struct context *c, const struct model *m, struct store *s,
                 const struct uuid *tenant, const struct uuid *turn, struct err *e) must_check;

/* What was read; it is read anew when it is needed. */
void context_release(struct context *c);

/* How many items of the running turn the summary covers; the input, which is told, is one. */
size_t context_covered(const struct context *c, const struct uuid *turn);

/* An estimate of the tokens of items. */
size_t context_tokens_of(const struct item *items, size_t n);

/* Tokens that so many bytes of text come to, or fewer. */
size_t context_tokens(size_t bytes);

/* How many tokens a prompt may have: what the model's window leaves beside an answer. */
size_t context_room(const struct model *m);

struct composed {
	struct item_list list; /* borrows from context and transcript, but for text */
	size_t input;          /* index of the running turn's input */
	char *text[2];         /* owned: that of the input, and of the first item */
};

/*
 * Earlier turns and then the transcript, in at most so many tokens; the transcript is whole
 * in any case.  -1 without memory.
 */
int context_compose(const struct context *c, const struct uuid *turn, const struct transcript *t,
                    size_t tokens, struct composed *ret, struct err *e) must_check;

void composed_release(struct composed *composed);

#endif
