/*
 * reader_format.h - between the files of the stream reader: what each wire format uses.
 *
 * A format looks at one event after the other and says what it means through the
 * functions below, which keep the rules that all formats share: numbers of calls, their
 * order and their bounds, no word after the last one.
 */
#ifndef DAEMON_MODEL_READER_FORMAT_H
#define DAEMON_MODEL_READER_FORMAT_H

#include "common/buf.h"
#include "common/json.h"
#include "daemon/model/reader.h"
#include "daemon/model/sse.h"

#define READER_ID_MAX 64 /* bytes of a call's id that are compared */

struct open_call {
	int64_t key;                /* what the format names it by */
	char id[READER_ID_MAX + 1]; /* where ids tell calls apart that share a key */
	bool spoken;                /* some of its arguments came */
	bool ended;
};

#define READER_THOUGHT_MAX ((size_t)4 << 20) /* bytes of one part of reasoning */

/* Reasoning that has begun. */
struct open_thought {
	int64_t key;
	bool open;
	bool spoken; /* some of it was said */
	struct buf text, signature;
};

struct reader {
	struct reader_sink sink;
	int (*event)(struct reader *s, const struct json *event, struct err *e);
	struct sse sse;
	size_t bytes;
	struct open_call calls[READER_CALLS_MAX];
	unsigned int call_count;
	struct open_thought thought;
	struct usage usage;
	bool usage_said;
	enum stop stop;
	bool done;
};

/* One event each; 0, or -1 with a code of fault.h. */
int chat_event(struct reader *s, const struct json *event, struct err *e) must_check;
int responses_event(struct reader *s, const struct json *event, struct err *e) must_check;
int messages_event(struct reader *s, const struct json *event, struct err *e) must_check;

/* Text of one of the three kinds; what is no string or empty says nothing. */
void reader_text(struct reader *s, enum said_kind kind, const struct json *text);

/* The same of any text. */
void reader_words(struct reader *s, enum said_kind kind, const char *text, size_t len);

/* A part of reasoning is whole; back is what its provider wants again, NULL = nothing. */
int reader_reasoning_end(struct reader *s, const struct json *back, struct err *e) must_check;

/* A new call. */
int reader_call(struct reader *s, int64_t key, const char *id, const struct json *name,
                struct err *e) must_check;

/* The newest call with that key that has not ended; NULL = none. */
struct open_call *reader_find(struct reader *s, int64_t key);

void reader_arguments(struct reader *s, struct open_call *call, const char *text, size_t len);
void reader_call_end(struct reader *s, struct open_call *call);

/* Keep, to be said at the end. */
void reader_usage(struct reader *s, const struct usage *usage);
void reader_stop(struct reader *s, enum stop stop);

/* The last word: all calls end; usage and stop are said. -1 when there was no stop. */
int reader_finish(struct reader *s, struct err *e) must_check;

/* -1, MODEL_MALFORMED. */
int reader_malformed(struct err *e, const char *what);

/* A count of tokens; what is none is 0. */
uint64_t reader_count(const struct json *v);

/* Counts of a usage object whose total of input includes what was cached; NULL = none. */
void reader_usage_of(struct reader *s, const struct json *usage, const char *input,
                     const char *output);

/* How a format names a reason to stop; the last row has NULL. */
struct stop_row {
	const char *reason;
	enum stop stop;
};

int reader_stop_as(struct reader *s, const struct stop_row *rows, const char *reason, struct err *e)
	must_check;

/* What an event of a type means; the last row has NULL. */
struct event_row {
	const char *type;
	int (*take)(struct reader *s, const struct json *event, struct err *e);
};

/* Types that are not among the rows are skipped: there are many, and new ones may come. */
int reader_event_as(struct reader *s, const struct event_row *rows, const struct json *event,
                    struct err *e) must_check;

#endif
