/*
 * What a guest answers to a call.  The real link and the real call are asked; the guest says
 * what the input has for it, and ends.  The first byte chooses the call.  Then come frames:
 * a type, two bytes of length, and a payload; they are sent with the call's id, a number of
 * type 0 as bytes without a frame around them.
 */
#include "fuzz/fuzz.h"

#include "common/json.h"
#include "common/log.h"
#include "common/utf8.h"
#include "daemon/sandbox/fake_launcher.h"
#include "daemon/sandbox/sandbox.h"

#define LIMIT 1000 /* bytes of a file, and entries of a directory, that are asked for */

static const uint8_t *script;
static size_t script_len;

/* -- the guest ------------------------------------------------------------------------------ */

static void say_all(struct guest *g, uint64_t call)
{
	const uint8_t *at = script, *end = script + script_len;

	while (end - at >= 3) {
		size_t len = (size_t)at[1] << 8 | at[2];
		uint8_t type = at[0];

		at += 3;
		if (len > (size_t)(end - at))
			len = (size_t)(end - at);
		if (type)
			guest_say(g, type, call, at, len);
		else
			guest_raw(g, at, len);
		at += len;
	}
}

static void behave(struct guest *g)
{
	uint64_t call;

	guest_shake(g);
	call = guest_next(g);
	if (call)
		say_all(g, call);
}

/* -- calls ---------------------------------------------------------------------------------- */

struct heard {
	uint64_t bytes;
	struct buf text;
};

static void hear_output(void *ctx, int stream, const char *data, size_t len)
{
	struct heard *h = ctx;

	demand((stream == 1 || stream == 2) && len > 0);
	h->bytes += len;
	buf_add(&h->text, data, len);
}

static bool is_id(const char *id)
{
	return *id && strlen(id) < SANDBOX_OUTPUT_ID && utf8_valid(id, strlen(id));
}

static void check_state(const struct command_state *s)
{
	demand(memchr(s->reason, '\0', sizeof(s->reason)) && s->code >= -1 && s->code <= 255);
	demand(memchr(s->message, '\0', sizeof(s->message)) && s->signal >= 0 && s->signal <= 64);
	demand(utf8_valid(s->message, strlen(s->message)));
}

static void see_command(void *ctx, const char *id, const char *command,
                        const struct command_state *state)
{
	unsigned int *count = ctx;

	demand(is_id(id) && utf8_valid(command, strlen(command)) && ++*count <= 32);
	check_state(state);
}

static void ask_exec(const struct sandbox_use *use, const struct output_sink *sink, struct err *e)
{
	const struct exec_spec spec = { .shell = "true", .cwd = "/", .keep = 100 };
	const struct heard *h = sink->ctx;
	struct exec_result r;

	if (sandbox_exec(use, &spec, sink, &r, e) < 0) {
		demand(!h->bytes);
		return;
	}
	demand(r.stdout_bytes + r.stderr_bytes == h->bytes);
	demand(r.reason == EXEC_EXITED || r.reason == EXEC_LOST);
	demand((r.reason == EXEC_EXITED) == (r.code >= 0 || r.signal > 0));
	demand(r.code >= -1 && r.code <= 255 && r.signal >= 0 && r.signal <= 64);
	demand(!*r.output || is_id(r.output));
}

static void ask_read(const struct sandbox_use *use, const struct output_sink *sink, struct err *e)
{
	const struct heard *h = sink->ctx;
	struct file_range range = { .limit = LIMIT };

	if (sandbox_read(use, "/a", &range, sink, e) == 0)
		demand(range.bytes == h->bytes && strlen(range.version) < FILE_VERSION_SIZE);
	demand(h->bytes <= LIMIT);
}

/* Whatever the end: the lines that were given are JSON. */
static void ask_list(const struct sandbox_use *use, const struct output_sink *sink, struct err *e)
{
	struct file_listing listing = { .limit = LIMIT };
	struct err ignored = ERR_INIT;
	struct heard *h = sink->ctx;
	uint64_t lines = 0;

	if (sandbox_list(use, "/", &listing, sink, e) == 0)
		demand(listing.entries <= listing.total);
	for (size_t at = 0; at < h->text.len; lines++) {
		char *end = memchr(h->text.data + at, '\n', h->text.len - at);

		demand(end && json_check(h->text.data + at, (size_t)(end - h->text.data) - at,
		                         &ignored) == 0);
		at = (size_t)(end - h->text.data) + 1;
	}
	demand(lines == listing.entries && lines <= LIMIT);
}

static void ask_output(const struct sandbox_use *use, const struct output_sink *sink, struct err *e)
{
	struct output_range range = { .limit = LIMIT, .offset = 5 };
	const struct heard *h = sink->ctx;

	if (sandbox_output(use, "abc", &range, sink, e) == 0) {
		demand(range.bytes == h->bytes && range.start >= 5);
		demand(range.gap_from <= range.gap_to);
		check_state(&range.state);
	}
	demand(h->bytes <= LIMIT);
}

static void ask_for_nothing(const struct sandbox_use *use, unsigned int which, struct err *e)
{
	const struct exec_spec spec = { .shell = "true", .cwd = "/" };
	const struct file_change change = { .path = "/a", .data = "new", .len = 3 };
	char id[SANDBOX_OUTPUT_ID];
	struct command_state state;
	unsigned int count = 0;

	switch (which) {
	case 0:
		demand(sandbox_background(use, &spec, id, e) < 0 || is_id(id));
		break;
	case 1:
		(void)!sandbox_input(use, "abc", "text", true, e);
		break;
	case 2:
		if (sandbox_stop_command(use, "abc", &state, e) == 0)
			check_state(&state);
		break;
	case 3:
		(void)!sandbox_commands(use, see_command, &count, e);
		break;
	case 4:
		(void)!sandbox_write(use, "/a", "text", 4, e);
		break;
	default:
		(void)!sandbox_change(use, &change, 1, e);
		break;
	}
}

static void ask(struct sandboxes *boxes, unsigned int which)
{
	static const struct uuid tenant = { "0191d2b4-0000-7000-8000-000000000001" };
	const struct sandbox_use use = { boxes, &tenant, NULL };
	struct heard heard = { .text = BUF_INIT((size_t)1 << 24) };
	const struct output_sink sink = { hear_output, &heard };
	struct err e = ERR_INIT;

	if (which == 0)
		ask_exec(&use, &sink, &e);
	else if (which == 1)
		ask_read(&use, &sink, &e);
	else if (which == 2)
		ask_list(&use, &sink, &e);
	else if (which == 3)
		ask_output(&use, &sink, &e);
	else
		ask_for_nothing(&use, which - 4, &e);
	buf_release(&heard.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sandboxes_conf conf = { .start_timeout_ms = 60000,
		                       .idle_ms = 60000,
		                       .max_active = 1 };
	struct sandboxes *boxes = NULL;
	struct err e = ERR_INIT;
	static struct fake fake;

	if (size < 1)
		return 0;
	log_setup("fuzz", LOG_ERROR); /* a lie is a warning */
	script = data + 1;
	script_len = size - 1;
	fake_begin(&fake, behave);
	conf.launcher_sock = fake.server_end;
	demand(sandboxes_start(&conf, &boxes, &e) == 0);
	ask(boxes, data[0] % 10);
	sandboxes_stop(&boxes);
	fake_end(&fake);
	demand(!fake.overlap);
	return 0;
}
