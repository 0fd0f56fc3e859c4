#include "daemon/sandbox/exec.h"
#include "daemon/sandbox/outputs.h"

#include "common/clock.h"
#include "common/fd.h"
#include "daemon/metrics/metrics.h"

#include <stdio.h>
#include <string.h>

#define TIMEOUT_MAX_MS 86400000
#define ARGS_MAX       1024

const char *exec_reason_name(enum exec_reason reason)
{
	static const char *const names[] = {
		[EXEC_EXITED] = "exited",
		[EXEC_TIMEOUT] = "timeout",
		[EXEC_CANCELLED] = "cancelled",
		[EXEC_LOST] = "lost",
		[EXEC_OOM] = "oom",
		[EXEC_PIDS] = "pids",
		[EXEC_DISK_FULL] = "disk_full",
	};

	return names[reason];
}

static int put_command(struct json *start, const struct exec_spec *spec, struct err *e)
{
	struct json *args;
	size_t n = 0;

	if (!spec->shell == !spec->argv || !spec->cwd)
		return err_set(e, SANDBOX_INVALID,
		               "a command needs a directory and either arguments or a line");
	if (spec->shell) {
		json_put_str(start, "shell", spec->shell);
		return 0;
	}
	while (n <= ARGS_MAX && spec->argv[n])
		n++;
	if (n == 0 || n > ARGS_MAX)
		return err_set(e, SANDBOX_INVALID, "a command has 1 to %d arguments", ARGS_MAX);
	args = json_new_array();
	for (size_t i = 0; i < n; i++)
		json_push_str(args, spec->argv[i]);
	json_put(start, "argv", args);
	return 0;
}

int exec_put_start(struct json *start, const struct exec_spec *spec, struct err *e)
{
	json_put_str(start, "op", "exec");
	if (put_command(start, spec, e) < 0)
		return -1;
	json_put_str(start, "cwd", spec->cwd);
	if (spec->timeout_ms > TIMEOUT_MAX_MS)
		return err_set(e, SANDBOX_INVALID, "a command runs for at most %d ms",
		               TIMEOUT_MAX_MS);
	if (spec->timeout_ms)
		json_put_int(start, "timeoutMs", (int64_t)spec->timeout_ms);
	if (spec->keep)
		json_put_int(start, "keep", (int64_t)spec->keep);
	return 0;
}

/* -- output ---------------------------------------------------------------------------------- */

int exec_take(void *ctx, int stream, const char *data, size_t len, struct err *e)
{
	struct exec_output *out = ctx;

	(void)e;
	if (stream == 2)
		out->result->stderr_bytes += len;
	else
		out->result->stdout_bytes += len;
	if (out->sink && out->sink->take)
		out->sink->take(out->sink->ctx, stream, data, len);
	return 0;
}

/* -- result ---------------------------------------------------------------------------------- */

enum exit_field {
	REASON,
	CODE,
	SIGNAL,
	STDOUT_BYTES,
	STDERR_BYTES,
	SURVIVORS,
	OUTPUT,
	EXIT_FIELDS
};

static const struct json_field exit_fields[EXIT_FIELDS] = {
	[REASON] = { "reason", JSON_STRING, true, false },
	[CODE] = { "code", JSON_INT, false, false },
	[SIGNAL] = { "signal", JSON_INT, false, false },
	[STDOUT_BYTES] = { "stdoutBytes", JSON_INT, true, false },
	[STDERR_BYTES] = { "stderrBytes", JSON_INT, true, false },
	[SURVIVORS] = { "survivors", JSON_INT, false, false },
	[OUTPUT] = { "output", JSON_STRING, false, false },
};

/* Its clock may be a little ahead of ours. */
static bool time_was_up(const struct call_plan *plan)
{
	uint64_t passed = clock_mono_ms() - plan->begun;

	return plan->timeout_ms && passed + passed / 50 + 20 >= plan->timeout_ms;
}

/* What a guest may claim; -1 for the rest, and for what cannot be because nobody asked for it. */
static int claimed_reason(const struct call_plan *plan, const char *name)
{
	if (!strcmp(name, "exited"))
		return EXEC_EXITED;
	if (!strcmp(name, "timeout") && time_was_up(plan))
		return EXEC_TIMEOUT;
	if (!strcmp(name, "cancelled") && plan->cancelled)
		return EXEC_CANCELLED;
	return -1;
}

/* NULL, or why this cannot be the result of an exec. */
static const char *check_values(const struct json *const *v, int reason)
{
	if (reason < 0)
		return "EXIT with a reason that a guest cannot claim";
	if (v[CODE] && v[SIGNAL])
		return "EXIT with code and signal";
	if (reason == EXEC_EXITED && !v[CODE] && !v[SIGNAL])
		return "EXIT with neither code nor signal";
	if (v[CODE] && json_int(v[CODE]) > 255)
		return "EXIT with a code above 255";
	if (v[SIGNAL] && (json_int(v[SIGNAL]) < 1 || json_int(v[SIGNAL]) > 64))
		return "EXIT with a signal that does not exist";
	if (v[SURVIVORS] && json_int(v[SURVIVORS]) > UINT32_MAX)
		return "EXIT with more survivors than processes can be";
	if (v[OUTPUT] && !output_id_valid(json_str(v[OUTPUT])))
		return "EXIT with an id of an output that is none";
	return NULL;
}

/* Frames come in order, so what the guest has sent is here when its EXIT is. */
static const char *check_counts(const struct json *const *v, const struct exec_result *received)
{
	if ((uint64_t)json_int(v[STDOUT_BYTES]) != received->stdout_bytes ||
	    (uint64_t)json_int(v[STDERR_BYTES]) != received->stderr_bytes)
		return "EXIT with other counts of bytes than were received";
	return NULL;
}

static int take_result(struct call *c, const struct call_plan *plan, struct exec_result *ret,
                       struct err *e)
{
	const struct json *v[EXIT_FIELDS];
	auto_exit struct call_exit result = { exit_fields, EXIT_FIELDS, v, NULL };
	const char *fault;
	int reason;

	if (call_result(c, plan, &result, e) < 0) {
		if (e->code != SANDBOX_LOST && ret->stdout_bytes + ret->stderr_bytes)
			return call_lie(c, "output of a command that was never run", e);
		return -1;
	}
	reason = claimed_reason(plan, json_str(v[REASON]));
	fault = check_values(v, reason);
	if (!fault)
		fault = check_counts(v, ret);
	if (fault)
		return call_lie(c, fault, e);
	ret->reason = (enum exec_reason)reason;
	if (v[SIGNAL])
		ret->signal = (int)json_int(v[SIGNAL]);
	if (v[OUTPUT])
		(void)snprintf(ret->output, sizeof(ret->output), "%s", json_str(v[OUTPUT]));
	if (reason != EXEC_EXITED)
		return 0;
	if (v[CODE])
		ret->code = (int)json_int(v[CODE]);
	ret->survivors = v[SURVIVORS] ? (unsigned int)json_int(v[SURVIVORS]) : 0;
	return 0;
}

/*
 * The sandbox ended under it.  What the caller asked for is the better reason; that the
 * time was over as well is not, when the host knows another.
 */
static void take_loss(const struct call_plan *plan, enum exec_reason loss, struct exec_result *ret)
{
	ret->reason = loss;
	if (plan->cancelled)
		ret->reason = EXEC_CANCELLED;
	else if (plan->timed_out && loss == EXEC_LOST)
		ret->reason = EXEC_TIMEOUT;
}

int exec_end(struct call *c, const struct call_plan *plan, struct exec_result *ret, struct err *e)
{
	if (c->state == CALL_LOST) {
		take_loss(plan, c->loss, ret);
		return 0;
	}
	if (take_result(c, plan, ret, e) == 0)
		return 0;
	if (e->code != SANDBOX_LOST)
		return -1;
	take_loss(plan, EXEC_LOST, ret);
	return 0;
}

static int run_exec(const struct sandbox_use *use, const struct exec_spec *spec,
                    const struct output_sink *sink, struct exec_result *ret, struct err *e)
{
	auto_call struct call c = CALL_INIT;
	auto_json struct json *start = json_new_object();
	struct exec_output out = { .sink = sink, .result = ret };
	struct call_plan plan = { .start = start,
		                  .streams = 3,
		                  .take = exec_take,
		                  .ctx = &out,
		                  .has_input = spec->input_len > 0,
		                  .input = spec->input,
		                  .input_len = spec->input_len,
		                  .timeout_ms = spec->timeout_ms };

	*ret = (struct exec_result){ .reason = EXEC_LOST, .code = -1 };
	if (exec_put_start(start, spec, e) < 0 || call_run(&c, use, &plan, e) < 0)
		return -1;
	return exec_end(&c, &plan, ret, e);
}

int sandbox_exec(const struct sandbox_use *use, const struct exec_spec *spec,
                 const struct output_sink *sink, struct exec_result *ret, struct err *e)
{
	int rc = run_exec(use, spec, sink, ret, e);

	if (rc == 0)
		metric_count(METRIC_EXEC, ret->reason);
	metric_add(METRIC_EXEC_BYTES, 0, ret->stdout_bytes);
	metric_add(METRIC_EXEC_BYTES, 1, ret->stderr_bytes);
	return rc;
}
