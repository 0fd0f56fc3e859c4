#include "guest/call.h"

#include "common/fd.h"
#include "guest/channel.h"
#include "guest/exec.h"
#include "guest/fault.h"
#include "guest/file.h"
#include "guest/output.h"
#include "guest/pool.h"

#include <arpa/inet.h>
#include <string.h>

static const struct {
	const char *op;
	struct call *(*start)(const struct json *request, struct err *e);
} operations[] = {
	{ "exec", exec_start },          { "read", file_read_start },
	{ "write", file_write_start },   { "list", file_list_start },
	{ "change", file_change_start }, { "output", output_start },
	{ "input", input_start },        { "stop", stop_start },
	{ "commands", commands_start },
};

static struct call *table[FRAME_CALLS_MAX];
static size_t table_len;
static size_t first_step; /* rotates, so that every call is the first one now and then */

static struct call *find_call(uint64_t id)
{
	for (size_t i = 0; id && i < table_len; i++)
		if (table[i]->id == id)
			return table[i];
	return NULL;
}

static void send_error(uint64_t id, const struct err *e)
{
	struct json *answer = json_new_object();
	struct json *error = json_new_object();

	json_put_str(error, "code", fault_word(e->code));
	json_put_str(error, "message", e->text);
	json_put(answer, "error", error);
	channel_send_json(FRAME_EXIT, id, answer);
}

static struct call *start_request(const struct json *request, struct err *e)
{
	const struct json *op = json_type(request) == JSON_OBJECT ? json_get(request, "op") : NULL;

	if (!op || json_type(op) != JSON_STRING) {
		(void)err_set(e, FAULT_INVALID, "op: must be a string");
		return NULL;
	}
	for (size_t i = 0; i < ARRAY_LEN(operations); i++)
		if (strcmp(operations[i].op, json_str(op)) == 0)
			return operations[i].start(request, e);
	(void)err_set(e, FAULT_INVALID, "op: no operation \"%.64s\"", json_str(op));
	return NULL;
}

static struct call *start_call(const struct frame *f, struct err *e)
{
	auto_json struct json *request = NULL;

	if (table_len >= FRAME_CALLS_MAX) {
		(void)err_set(e, FAULT_BUSY, "%d calls are open", FRAME_CALLS_MAX);
		return NULL;
	}
	if (json_parse(f->payload, f->len, &request, e) < 0) {
		e->code = FAULT_INVALID;
		return NULL;
	}
	return start_request(request, e);
}

static void take_start(const struct frame *f)
{
	struct err e = ERR_INIT;
	struct call *c;

	if (!f->call || find_call(f->call))
		fault_die(GUEST_EXIT_PROTOCOL, "START with a call id in use");
	c = start_call(f, &e);
	if (!c) {
		send_error(f->call, &e);
		return;
	}
	c->id = f->call;
	c->credit_in = c->credit_out = FRAME_WINDOW;
	table[table_len++] = c;
}

static void take_input(struct call *c, const struct frame *f)
{
	if (f->len > c->credit_in)
		fault_die(GUEST_EXIT_PROTOCOL, "%zu bytes of INPUT with a credit of %llu", f->len,
		          (unsigned long long)c->credit_in);
	if (c->input_ended)
		fault_die(GUEST_EXIT_PROTOCOL, "INPUT after END");
	c->credit_in -= f->len;
	if (f->len)
		c->kind->input(c, f->payload, f->len);
}

static void take_end(struct call *c)
{
	if (c->input_ended)
		return;
	c->input_ended = true;
	c->kind->end(c);
}

static void take_credit(struct call *c, const struct frame *f)
{
	uint32_t bytes = frame_number(f);

	if (!bytes)
		fault_die(GUEST_EXIT_PROTOCOL, "CREDIT of no bytes");
	c->credit_out += bytes;
}

static void send_pong(const struct frame *ping)
{
	uint32_t left = htonl((uint32_t)(pool_left() + exec_background()));

	channel_send(FRAME_PONG, ping->call, &left, sizeof(left));
}

static void take_for_call(const struct frame *f)
{
	struct call *c = find_call(f->call);

	if (!c || c->exited)
		return;
	if (f->type == FRAME_INPUT)
		take_input(c, f);
	else if (f->type == FRAME_END)
		take_end(c);
	else if (f->type == FRAME_CREDIT)
		take_credit(c, f);
	else
		c->kind->cancel(c);
}

void calls_frame(const struct frame *f)
{
	switch (f->type) {
	case FRAME_START:
		take_start(f);
		break;
	case FRAME_INPUT:
	case FRAME_END:
	case FRAME_CREDIT:
	case FRAME_CANCEL:
		take_for_call(f);
		break;
	case FRAME_PING:
		send_pong(f);
		break;
	case FRAME_HELLO:
	case FRAME_READY:
	case FRAME_STDOUT:
	case FRAME_STDERR:
	case FRAME_EXIT:
	case FRAME_PONG:
		fault_die(GUEST_EXIT_PROTOCOL, "a frame of type 0x%02x from the daemon", f->type);
	}
}

void calls_turn(struct turn *t)
{
	size_t kept = 0;

	for (size_t i = 0; i < table_len; i++) {
		struct call *c = table[(first_step + i) % table_len];

		if (!c->exited)
			c->kind->step(c, t);
	}
	for (size_t i = 0; i < table_len; i++) {
		if (table[i]->exited)
			table[i]->kind->release(table[i]);
		else
			table[kept++] = table[i];
	}
	if (kept < table_len)
		turn_wake(t, t->now_ms); /* for a call that waits for what the released one held */
	table_len = kept;
	first_step++;
}

void calls_close(void)
{
	for (size_t i = 0; i < table_len; i++)
		table[i]->kind->release(table[i]);
	table_len = 0;
}

struct call *call_init(struct call *c, const struct call_kind *kind)
{
	c->kind = kind;
	return c;
}

size_t call_sendable(const struct call *c)
{
	if (!channel_room())
		return 0;
	return c->credit_out < FRAME_DATA_MAX ? (size_t)c->credit_out : FRAME_DATA_MAX;
}

void call_send(struct call *c, enum frame_type type, const char *data, size_t len)
{
	c->credit_out -= len;
	channel_send(type, c->id, data, len);
}

void call_grant(struct call *c, size_t bytes)
{
	c->credit_in += bytes;
	if (c->id)
		channel_send_credit(c->id, (uint32_t)bytes);
}

void call_exit(struct call *c, struct json *result)
{
	c->exited = true;
	channel_send_json(FRAME_EXIT, c->id, result);
}

void call_detach(struct call *c, struct json *result)
{
	channel_send_json(FRAME_EXIT, c->id, result);
	c->id = 0;
}

void call_fail(struct call *c, const struct err *e)
{
	c->exited = true;
	send_error(c->id, e);
}

void call_drop_input(struct call *c, const char *data, size_t len)
{
	(void)data;
	call_grant(c, len);
}

void call_ignore_end(struct call *c)
{
	(void)c;
}

void call_cancelled(struct call *c)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, FAULT_CANCELLED, "cancelled");
	call_fail(c, &e);
}
