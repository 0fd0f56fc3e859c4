#include "daemon/tool/command.h"

#include "common/clock.h"
#include "common/utf8.h"

#include <inttypes.h>
#include <string.h>

#define FIRST_MS    250 /* a command that fails at once is seen to */
#define FIRST_BYTES 16384

void command_describe(const struct command_state *state, struct buf *text)
{
	const char *gap = text->len && text->data[text->len - 1] != '\n' ? "\n" : "";

	if (state->running)
		buf_addf(text, "%s[running]", gap);
	else if (state->message[0])
		buf_addf(text, "%s[not run: %s: %s]", gap, state->reason, state->message);
	else if (strcmp(state->reason, "exited") == 0 && state->signal)
		buf_addf(text, "%s[killed by signal %d]", gap, state->signal);
	else if (strcmp(state->reason, "exited") == 0)
		buf_addf(text, "%s[exit code %d]", gap, state->code);
	else
		buf_addf(text, "%s[ended: %s]", gap, state->reason[0] ? state->reason : "exited");
}

void command_details(const struct command_state *state, struct tool_outcome *ret)
{
	json_put_str(ret->details, "reason", state->running ? "running" : "done");
	if (state->code >= 0)
		json_put_int(ret->details, "exitCode", state->code);
	if (state->signal)
		json_put_int(ret->details, "signal", state->signal);
}

static void take(void *ctx, int stream, const char *data, size_t len)
{
	(void)stream;
	buf_add(ctx, data, len);
}

/* Wait a little for its end; what it has written by then. */
static int look(const struct sandbox_use *use, const char *id, struct buf *data,
                struct output_range *r, struct err *e)
{
	uint64_t deadline = clock_mono_ms() + FIRST_MS;
	struct output_sink sink = { take, data };

	*r = (struct output_range){ .limit = 0 };
	do {
		r->offset = r->state.total;
		r->wait_ms = (uint64_t)clock_left_ms(deadline);
		if (sandbox_output(use, id, r, &sink, e))
			return -1;
	} while (r->state.running && clock_left_ms(deadline) > 0);
	*r = (struct output_range){ .limit = FIRST_BYTES };
	return sandbox_output(use, id, r, &sink, e);
}

static void describe_start(const struct output_range *r, const struct buf *data, struct buf *text,
                           struct tool_outcome *ret)
{
	if (data->len)
		ret->result.lossy = utf8_repair(data->data, data->len, text);
	command_describe(&r->state, text);
	ret->result.truncated = r->bytes < r->state.total;
	ret->result.total_bytes = r->state.total;
	command_details(&r->state, ret);
}

/* It runs, so its id is told whatever comes of the look: nobody shall start it a second time. */
int command_start(const struct tool_context *c, const struct exec_spec *spec,
                  struct tool_outcome *ret, struct err *e)
{
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX), data = BUF_INIT(FIRST_BYTES);
	char id[SANDBOX_OUTPUT_ID];
	struct output_range r;

	if (sandbox_background(&use, spec, id, e))
		return tool_refuse_with(ret, e);
	buf_addf(&text, "started in the background as %s\n", id);
	if (look(&use, id, &data, &r, e) == 0) {
		describe_start(&r, &data, &text, ret);
	} else {
		buf_addf(&text, "[what it has written is not known: %s]", e->text);
		json_put_str(ret->details, "reason", "running");
	}
	tool_body(ret, &text);
	json_put_str(ret->details, "outputId", id);
	return 0;
}
