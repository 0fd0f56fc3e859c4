#include "daemon/sandbox/outputs.h"

#include "common/utf8.h"
#include "daemon/sandbox/call.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define WAIT_MAX_MS  60000
#define LIMIT_MAX    ((uint64_t)1 << 32)
#define OFFSET_MAX   (((uint64_t)1 << 53) - 1) /* what JSON holds exactly */
#define COMMANDS_MAX 32

bool output_id_valid(const char *id)
{
	size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789_");

	return n > 0 && n < SANDBOX_OUTPUT_ID && !id[n];
}

static int take_nothing(void *ctx, int stream, const char *data, size_t len, struct err *e)
{
	(void)ctx, (void)stream, (void)data, (void)len;
	return err_set(e, EPROTO, "output of a call that has none");
}

static struct json *start_of(const char *op, const char *id)
{
	struct json *start = json_new_object();

	json_put_str(start, "op", op);
	if (id)
		json_put_str(start, "id", id);
	return start;
}

static int check_id(const char *id, struct err *e)
{
	return output_id_valid(id) ? 0 : err_set(e, SANDBOX_NOT_FOUND, "no output has this id");
}

/* -- state ---------------------------------------------------------------------------------- */

/* All that a guest says of a command, wherever it says it; the first fields of every table. */
enum state_field {
	S_RUNNING,
	S_TOTAL,
	S_REASON,
	S_CODE,
	S_SIGNAL,
	S_MESSAGE,
	S_STDOUT,
	S_STDERR,
	S_SURVIVORS,
	S_COUNT
};

#define STATE_FIELDS                                            \
	[S_RUNNING] = { "running", JSON_BOOL, true, false },    \
	[S_TOTAL] = { "total", JSON_INT, true, false },         \
	[S_REASON] = { "reason", JSON_STRING, false, false },   \
	[S_CODE] = { "code", JSON_INT, false, false },          \
	[S_SIGNAL] = { "signal", JSON_INT, false, false },      \
	[S_MESSAGE] = { "message", JSON_STRING, false, false }, \
	[S_STDOUT] = { "stdoutBytes", JSON_INT, false, false }, \
	[S_STDERR] = { "stderrBytes", JSON_INT, false, false }, \
	[S_SURVIVORS] = { "survivors", JSON_INT, false, false }

/* NULL, or why it cannot be the state of a command. */
static const char *read_state(const struct json *const *v, struct command_state *ret)
{
	const char *reason = v[S_REASON] ? json_str(v[S_REASON]) : "";

	*ret = (struct command_state){ .running = json_bool(v[S_RUNNING]), .code = -1 };
	if (json_int(v[S_TOTAL]) < 0)
		return "a command with a negative count of bytes";
	if (strlen(reason) >= sizeof(ret->reason) ||
	    strspn(reason, "abcdefghijklmnopqrstuvwxyz_") != strlen(reason))
		return "a command that ended for no reason";
	if ((v[S_CODE] && (json_int(v[S_CODE]) < 0 || json_int(v[S_CODE]) > 255)) ||
	    (v[S_SIGNAL] && (json_int(v[S_SIGNAL]) < 1 || json_int(v[S_SIGNAL]) > 64)))
		return "a command with a code or signal that does not exist";
	ret->total = (uint64_t)json_int(v[S_TOTAL]);
	(void)snprintf(ret->reason, sizeof(ret->reason), "%s", reason);
	(void)snprintf(ret->message, sizeof(ret->message), "%s",
	               v[S_MESSAGE] ? json_str(v[S_MESSAGE]) : "");
	ret->message[utf8_whole(ret->message, strlen(ret->message))] = '\0';
	ret->code = v[S_CODE] ? (int)json_int(v[S_CODE]) : -1;
	ret->signal = v[S_SIGNAL] ? (int)json_int(v[S_SIGNAL]) : 0;
	return NULL;
}

/* -- background ------------------------------------------------------------------------------- */

int sandbox_background(const struct sandbox_use *use, const struct exec_spec *spec,
                       char ret_id[SANDBOX_OUTPUT_ID], struct err *e)
{
	static const struct json_field fields[] = { { "output", JSON_STRING, true, false } };
	const struct json *v[1];
	auto_exit struct call_exit result = { fields, 1, v, NULL };
	auto_call struct call c = CALL_INIT;
	auto_json struct json *start = json_new_object();
	struct call_plan plan = { .start = start, .take = take_nothing };

	if (exec_put_start(start, spec, e) < 0)
		return -1;
	json_put_bool(start, "background", true);
	if (call_run(&c, use, &plan, e) < 0 || call_result(&c, &plan, &result, e) < 0)
		return -1;
	if (!output_id_valid(json_str(v[0])))
		return call_lie(&c, "EXIT with an id of an output that is none", e);
	(void)snprintf(ret_id, SANDBOX_OUTPUT_ID, "%s", json_str(v[0]));
	return 0;
}

int sandbox_input(const struct sandbox_use *use, const char *id, const char *data, bool end,
                  struct err *e)
{
	static const struct json_field fields[] = { { "bytes", JSON_INT, true, false } };
	const struct json *v[1];
	auto_exit struct call_exit result = { fields, 1, v, NULL };
	auto_call struct call c = CALL_INIT;
	auto_json struct json *start = start_of("input", id);
	struct call_plan plan = { .start = start, .take = take_nothing };

	json_put_str(start, "data", data);
	json_put_bool(start, "end", end);
	if (check_id(id, e) < 0 || call_run(&c, use, &plan, e) < 0 ||
	    call_result(&c, &plan, &result, e) < 0)
		return -1;
	if ((uint64_t)json_int(v[0]) != strlen(data))
		return call_lie(&c, "EXIT of an input with another count than was sent", e);
	return 0;
}

int sandbox_stop_command(const struct sandbox_use *use, const char *id, struct command_state *ret,
                         struct err *e)
{
	static const struct json_field fields[S_COUNT] = { STATE_FIELDS };
	const struct json *v[S_COUNT];
	auto_exit struct call_exit result = { fields, S_COUNT, v, NULL };
	auto_call struct call c = CALL_INIT;
	auto_json struct json *start = start_of("stop", id);
	struct call_plan plan = { .start = start, .take = take_nothing };
	const char *fault;

	if (check_id(id, e) < 0 || call_run(&c, use, &plan, e) < 0 ||
	    call_result(&c, &plan, &result, e) < 0)
		return -1;
	fault = read_state(v, ret);
	return fault ? call_lie(&c, fault, e) : 0;
}

/* -- output --------------------------------------------------------------------------------- */

enum {
	O_OFFSET = S_COUNT,
	O_BYTES,
	O_GAP_FROM,
	O_GAP_TO,
	O_COUNT
};

struct range_output {
	const struct output_sink *sink;
	struct output_range *range;
};

static int take_range(void *ctx, int stream, const char *data, size_t len, struct err *e)
{
	struct range_output *out = ctx;

	if (len > out->range->limit - out->range->bytes)
		return err_set(e, EPROTO, "more of an output than was asked for");
	out->range->bytes += len;
	out->sink->take(out->sink->ctx, stream, data, len);
	return 0;
}

static const char *read_range(const struct json *const *v, struct output_range *range)
{
	for (int i = O_OFFSET; i < O_COUNT; i++)
		if (json_int(v[i]) < 0)
			return "EXIT of an output with a negative number";
	if ((uint64_t)json_int(v[O_BYTES]) != range->bytes)
		return "EXIT of an output with another count than was sent";
	if ((uint64_t)json_int(v[O_OFFSET]) < range->offset ||
	    json_int(v[O_GAP_FROM]) > json_int(v[O_GAP_TO]))
		return "EXIT of an output with places that cannot be";
	range->start = (uint64_t)json_int(v[O_OFFSET]);
	range->gap_from = (uint64_t)json_int(v[O_GAP_FROM]);
	range->gap_to = (uint64_t)json_int(v[O_GAP_TO]);
	return read_state(v, &range->state);
}

int sandbox_output(const struct sandbox_use *use, const char *id, struct output_range *range,
                   const struct output_sink *sink, struct err *e)
{
	static const struct json_field fields[O_COUNT] = {
		STATE_FIELDS,
		[O_OFFSET] = { "offset", JSON_INT, true, false },
		[O_BYTES] = { "bytes", JSON_INT, true, false },
		[O_GAP_FROM] = { "gapFrom", JSON_INT, true, false },
		[O_GAP_TO] = { "gapTo", JSON_INT, true, false },
	};
	const struct json *v[O_COUNT];
	auto_exit struct call_exit result = { fields, O_COUNT, v, NULL };
	auto_call struct call c = CALL_INIT;
	auto_json struct json *start = start_of("output", id);
	struct range_output out = { sink, range };
	struct call_plan plan = { .start = start, .streams = 1, .take = take_range, .ctx = &out };
	const char *fault;

	range->bytes = 0;
	if (range->offset > OFFSET_MAX || range->limit > LIMIT_MAX || range->wait_ms > WAIT_MAX_MS)
		return err_set(e, SANDBOX_INVALID, "offset, limit or wait is too large");
	json_put_int(start, "offset", (int64_t)range->offset);
	json_put_int(start, "limit", (int64_t)range->limit);
	json_put_int(start, "waitMs", (int64_t)range->wait_ms);
	if (check_id(id, e) < 0 || call_run(&c, use, &plan, e) < 0 ||
	    call_result(&c, &plan, &result, e) < 0)
		return -1;
	fault = read_range(v, range);
	return fault ? call_lie(&c, fault, e) : 0;
}

/* -- commands ------------------------------------------------------------------------------- */

enum {
	C_ID = S_COUNT,
	C_COMMAND,
	C_COUNT
};

struct commands {
	void (*fn)(void *ctx, const char *id, const char *command,
	           const struct command_state *state);
	void *ctx;
};

static const char *read_command(const struct json *o, const struct commands *to)
{
	static const struct json_field fields[C_COUNT] = {
		STATE_FIELDS,
		[C_ID] = { "id", JSON_STRING, true, false },
		[C_COMMAND] = { "command", JSON_STRING, true, false },
	};
	const struct json *v[C_COUNT];
	struct json_faults faults = { .count = 0 };
	struct command_state state;
	const char *fault;

	if (!json_fields(o, "", fields, C_COUNT, v, &faults))
		return "a command with other fields than it has";
	fault = read_state(v, &state);
	if (!fault && (!output_id_valid(json_str(v[C_ID])) || json_str_len(v[C_COMMAND]) > 1024))
		fault = "a command with an id or a name that it cannot have";
	if (!fault)
		to->fn(to->ctx, json_str(v[C_ID]), json_str(v[C_COMMAND]), &state);
	return fault;
}

int sandbox_commands(const struct sandbox_use *use,
                     void (*fn)(void *ctx, const char *id, const char *command,
                                const struct command_state *state),
                     void *ctx, struct err *e)
{
	static const struct json_field fields[] = { { "commands", JSON_ARRAY, true, false } };
	const struct json *v[1];
	auto_exit struct call_exit result = { fields, 1, v, NULL };
	auto_call struct call c = CALL_INIT;
	auto_json struct json *start = start_of("commands", NULL);
	struct call_plan plan = { .start = start, .take = take_nothing };
	const struct commands to = { fn, ctx };
	const char *fault = NULL;

	if (call_run(&c, use, &plan, e) < 0 || call_result(&c, &plan, &result, e) < 0)
		return -1;
	if (json_len(v[0]) > COMMANDS_MAX)
		fault = "more commands than are told of at once";
	for (size_t i = 0; i < json_len(v[0]) && !fault; i++)
		fault = read_command(json_at(v[0], i), &to);
	return fault ? call_lie(&c, fault, e) : 0;
}
