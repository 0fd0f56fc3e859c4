/*
 * turn.h - turns, their items and their human requests.
 *
 * A turn's transcript is a gapless list of items.  Each function below is one
 * transaction, and refuses (STORE_CONFLICT) when the turn's state does not allow it,
 * so that two callers cannot both win.
 */
#ifndef DAEMON_STORE_TURN_H
#define DAEMON_STORE_TURN_H

#include "daemon/store/store.h"

enum turn_state {
	TURN_QUEUED,
	TURN_RUNNING,
	TURN_WAITING, /* for a person: "waiting_for_input" */
	TURN_COMPLETED,
	TURN_FAILED,
	TURN_CANCELLED,
};

const char *turn_state_name(enum turn_state state);
bool turn_state_terminal(enum turn_state state);

#define TURN_ERROR_MAX 500 /* bytes */

struct turn {
	struct uuid id;
	struct uuid session;
	struct uuid client_request; /* text "" = none */
	enum turn_state state;
	bool cancel_requested;
	uint64_t created_ms;
	uint64_t started_ms;  /* 0 = not yet */
	uint64_t finished_ms; /* 0 = not yet */
	char error_code[64];  /* "" = none */
	char error[TURN_ERROR_MAX + 1];
	uint64_t input_tokens, output_tokens, cached_tokens;
	uint64_t reasoning_tokens;         /* of output_tokens */
	int64_t cost_nano;                 /* as in struct session */
	char *input;                       /* owned; UTF-8 without NUL */
	char *attachments;                 /* owned; JSON array of what came with it, or NULL */
	size_t attachment_bytes;           /* all together */
	const struct attachment *attached; /* turn_insert(): borrowed, ATTACHMENTS_MAX at most */
	size_t attached_count;
};

#define ATTACHMENTS_MAX       5
#define ATTACHMENTS_BYTES_MAX ((size_t)20 << 20) /* of one, and of all of a turn */

struct attachment {
	char *data; /* owned by whoever filled it */
	size_t len;
};

void turn_release(struct turn *t);

/*
 * Insert a queued turn with its first item (ITEM_USER), after marking the tenant
 * unfinished.  STORE_NOT_FOUND: no such session.  STORE_BUSY: it has an active turn.
 * With a client request id that exists already: same input and attachments give
 * *ret_existing = true and *t filled with the stored turn; others give STORE_KEY_REUSED.
 * STORE_TENANT_FULL.  created_ms grows within a session, whatever the clock does.
 */
int turn_insert(struct store *s, const struct uuid *tenant, struct turn *t, bool *ret_existing,
                struct err *e) must_check;

/*
 * The turn of t's client request id; *t becomes it.  STORE_NOT_FOUND: there is none.
 * STORE_KEY_REUSED, as turn_insert().
 */
int turn_find(struct store *s, const struct uuid *tenant, struct turn *t, struct err *e) must_check;

int turn_get(struct store *s, const struct uuid *tenant, const struct uuid *id, struct turn *ret,
             struct err *e) must_check;

/* The bytes of what came with a turn, from 1 on in the order of its list. */
int turn_attachment(struct store *s, const struct uuid *tenant, const struct uuid *turn, int number,
                    struct attachment *ret, struct err *e) must_check;

/* Where a page of turns begins: those strictly older. */
struct turn_key {
	uint64_t created_ms;
	struct uuid id;
};

struct turn_page {
	const struct uuid *session;   /* NULL = of all sessions */
	const struct turn_key *after; /* NULL = from the newest on */
	size_t limit;
	bool more; /* set by the call: older ones remain */
};

#define TURN_INPUT_SHOWN 65536 /* bytes of input that lists give; the last character may be cut */

/* Newest first, at most page->limit, with the beginning of their input. */
int turn_list(struct store *s, const struct uuid *tenant, struct turn_page *page,
              void (*fn)(void *ctx, const struct turn *t), void *ctx, struct err *e) must_check;

struct history_page {
	const struct uuid *session;
	uint64_t before; /* only turns of a lower index; UINT64_MAX = all */
	size_t limit;
	uint64_t total; /* set by the call: turns of the session */
	uint64_t end;   /* set by the call: index of the last turn given, and one */
};

/*
 * Turns of a session by their index, from end - 1 down, with the beginning of their input;
 * until fn says false.  A session that is not there has none.
 */
int turn_history(struct store *s, const struct uuid *tenant, struct history_page *page,
                 bool (*fn)(void *ctx, const struct turn *t), void *ctx, struct err *e) must_check;

/* Unfinished turns, oldest first. */
int turn_each_unfinished(struct store *s, const struct uuid *tenant,
                         void (*fn)(void *ctx, const struct turn *t), void *ctx, struct err *e)
	must_check;

/*
 * queued -> running, or running as a killed daemon left it.  started_ms is kept when it
 * was set before.  STORE_CONFLICT for a turn that waits for a person or is terminal.
 */
int turn_mark_running(struct store *s, const struct uuid *tenant, const struct uuid *id,
                      uint64_t now_ms, struct err *e) must_check;

/* Remember that the turn shall be cancelled; STORE_CONFLICT when it is terminal. */
int turn_request_cancel(struct store *s, const struct uuid *tenant, const struct uuid *id,
                        struct err *e) must_check;

struct turn_end {
	enum turn_state state;  /* a terminal one */
	const char *error_code; /* NULL = none */
	const char *error;      /* NULL = none; repaired and cut when it does not fit */
	uint64_t now_ms;
};

/*
 * Any unfinished state -> a terminal one; open requests of the turn become
 * withdrawn.  STORE_CONFLICT when it was terminal already.
 */
int turn_finish(struct store *s, const struct uuid *tenant, const struct uuid *id,
                const struct turn_end *end, struct err *e) must_check;

/* -- items -- */
enum item_kind {
	ITEM_USER,
	ITEM_ASSISTANT,   /* text of the model */
	ITEM_TOOL_CALL,   /* body: arguments, byte for byte */
	ITEM_TOOL_RESULT, /* body: what the model is shown */
	ITEM_REASONING,   /* body: as far as people may read it; before what it led to */
	ITEM_DISCARDED,   /* body: what was shown of an answer that failed; no model is told */
};

enum call_state {
	CALL_NONE,    /* not a tool call */
	CALL_PENDING, /* committed, not begun */
	CALL_STARTED, /* may have had an effect */
	CALL_DONE,    /* has a result item */
};

struct item {
	uint32_t seq; /* from 0 in each turn */
	enum item_kind kind;
	enum call_state call_state;
	char call_id[65];     /* tool calls and results */
	char tool[65];        /* tool calls and results */
	char origin[65];      /* reasoning: which model takes the opaque part back */
	bool lossy;           /* tool result: bytes were replaced by U+FFFD */
	bool truncated;       /* tool result: the middle was cut */
	bool beginning;       /* turn_items_shown() gave the beginning of body only */
	bool sealed;          /* reasoning: there is an opaque part, also where it was not read */
	uint64_t total_bytes; /* tool result: bytes of output before the cut */
	char *opaque;         /* reasoning: what the origin gets, NULL = none; owned as body is */
	size_t opaque_len;
	char *details; /* result, discarded: JSON, NULL = none; owned as body is */
	char *body;    /* owned by whoever filled it; bytes */
	size_t body_len;
};

struct item_list {
	struct item *items;
	size_t count;
};

void item_list_release(struct item_list *list);

/* All items of a turn in order. */
int turn_items(struct store *s, const struct uuid *tenant, const struct uuid *turn,
               struct item_list *ret, struct err *e) must_check;

/*
 * The first items of a turn as somebody is shown them: at most ITEMS_SHOWN, and texts
 * only from the beginning, at least ITEM_TEXT_SHOWN bytes of each as long as the turn
 * has given less than ITEMS_TEXT_SHOWN.  Arguments of calls are whole or missing.
 */
#define ITEMS_SHOWN      2048
#define ITEM_TEXT_SHOWN  65536
#define ITEMS_TEXT_SHOWN 262144

int turn_items_shown(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                     struct item_list *ret, struct err *e) must_check;

/* What one answer of a model adds. */
struct turn_step {
	struct item *items;
	size_t count;
	uint64_t input_tokens, output_tokens, cached_tokens;
	uint64_t reasoning_tokens;
	int64_t cost_nano; /* -1 = not known */
	uint32_t first;    /* the seq that the first item must get, else STORE_CONFLICT; 0 = any */
};

/*
 * Append items (seq is assigned, and sealed) and count the tokens for turn and session, in
 * one transaction; only to a running turn.  Calls must be pending; results come only
 * through turn_finish_call().  STORE_TENANT_FULL.
 */
int turn_append(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                struct turn_step *step, struct err *e) must_check;

/* pending -> started; STORE_CONFLICT unless it was pending. */
int turn_start_call(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                    uint32_t seq, struct err *e) must_check;

/*
 * Append the result (its seq is assigned) of the call at seq and mark that done, in one
 * transaction; only in a running turn.  STORE_CONFLICT when it is done already.
 */
int turn_finish_call(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                     uint32_t seq, struct item *result, struct err *e) must_check;

/* -- human requests -- */
enum request_state {
	REQUEST_OPEN,
	REQUEST_ANSWERED,
	REQUEST_WITHDRAWN, /* its turn ended */
	REQUEST_EXPIRED,   /* nobody answered in time */
};

struct request {
	struct uuid id;
	struct uuid turn;
	struct uuid session;
	char kind[32];
	char call_id[65];
	uint32_t call_seq; /* the tool call that waits for it */
	enum request_state state;
	uint64_t created_ms;
	uint64_t answered_ms;
	uint64_t expires_ms; /* 0 = never */
	bool before_call;    /* request_insert(): the call is not begun, the answer decides on it */
	char *prompt;        /* owned */
	char *options;       /* owned; JSON array of strings, as bytes */
	char *decision;      /* owned; NULL until answered */
	char *value;         /* owned; NULL = none */
};

void request_release(struct request *r);

/*
 * Insert the request, set the call started (unless before_call) and the turn waiting, in one
 * transaction.
 */
int request_insert(struct store *s, const struct uuid *tenant, const struct request *r,
                   struct err *e) must_check;

int request_get(struct store *s, const struct uuid *tenant, const struct uuid *id,
                struct request *ret, struct err *e) must_check;

/* The request about a call.  STORE_NOT_FOUND: there was none. */
int request_of_call(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                    uint32_t seq, struct request *ret, struct err *e) must_check;

/* Whether a request of that kind about a call of that tool was ever decided so. */
struct request_precedent {
	const struct uuid *session;
	const char *kind;
	const char *tool;
	const char *decision;
};

int request_decided(struct store *s, const struct uuid *tenant, const struct request_precedent *p,
                    bool *ret_found, struct err *e) must_check;

struct request_page {
	const struct uuid *turn; /* NULL = of all turns */
	size_t limit;
};

/* Open requests, newest first. */
int request_list(struct store *s, const struct uuid *tenant, const struct request_page *page,
                 void (*fn)(void *ctx, const struct request *r), void *ctx, struct err *e)
	must_check;

struct request_decision {
	const char *decision;      /* NULL = nobody decided before it expired */
	const char *value;         /* NULL = none */
	const struct item *result; /* what the waiting call returns; NULL = it is still to run */
	uint64_t now_ms;
	bool withdrawn;       /* nobody waits for the decision any more; it is NULL then */
	const bool *planning; /* what the session does from now on; NULL = as before */
};

/*
 * open -> answered, or expired when there is no decision, exactly once.  In the same transaction
 * the answer becomes the result of the waiting call and the turn goes back to queued.
 * STORE_CONFLICT when it was not open any more, when it was answered after it expired or expired
 * before.
 */
int request_answer(struct store *s, const struct uuid *tenant, const struct uuid *id,
                   const struct request_decision *d, struct err *e) must_check;

#endif
