/*
 * What a guest is asked: frames of the daemon, for the real channel and calls, in a root of
 * their own, in which there is nothing that could be run.
 *
 * An input is a row of frames: a byte of call id and type, two of length, and a payload;
 * type 0 is bytes without a frame around them.  Where a payload has "OUT", the id of an output
 * that is kept takes its place.  What the guest answers must be what docs/protocol.md allows,
 * no file of its own may be left behind, and no descriptor.  Each input is also read as what
 * comes before all these, a HELLO, and as an exec that was folded for a supervisor.
 */
#include "fuzz/fuzz.h"
#include "fuzz/other_json.h"
#include "fuzz/root.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "guest/call.h"
#include "guest/channel.h"
#include "guest/fault.h"
#include "guest/hello.h"
#include "guest/job.h"
#include "guest/loop.h"
#include "guest/pool.h"
#include "guest/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALLS     16
#define SENT_MAX  ((size_t)1 << 20)
#define TURNS_MAX 20000 /* a guest that has nothing to do comes to rest long before */

static struct {
	pthread_t thread;
	jmp_buf death;
	bool lives;
} guest;

static struct {
	uint64_t starts, exits, room, input, granted, pings;
} calls[CALLS];

/* The guest ends itself when the daemon breaks the protocol; here that ends the input. */
void _exit(int status)
{
	if (guest.lives && pthread_equal(guest.thread, pthread_self())) {
		demand(status == GUEST_EXIT_PROTOCOL);
		longjmp(guest.death, 1);
	}
	for (;;)
		(void)syscall(SYS_exit_group, status);
}

/* -- what is asked ---------------------------------------------------------------------------- */

static void check_variable(void *ctx, const char *key, const struct json *value)
{
	const char *text = job_getenv(ctx, key);

	demand(text && strcmp(text, json_str(value)) == 0);
}

static void check_argv(const struct job *job, const struct json *request)
{
	const struct json *argv = json_get(request, "argv");
	size_t n = argv ? json_len(argv) : 3;

	for (size_t i = 0; argv && i < n; i++)
		demand(strcmp(job->argv[i], json_str(json_at(argv, i))) == 0);
	if (!argv)
		demand(strcmp(job->argv[2], json_str(json_get(request, "shell"))) == 0);
	demand(!job->argv[n]);
}

/* Folded for a supervisor and unfolded again, an exec is what was asked for. */
static void check_exec(const struct json *request)
{
	auto_buf struct buf flat = BUF_INIT(JOB_FLAT_MAX);
	auto_job struct job job = { .cwd = NULL };
	struct job_options options;
	struct err e = ERR_INIT;
	char *copy;

	if (job_from_request(request, &flat, &options, &e) < 0) {
		demand(e.code == FAULT_INVALID && e.text[0]);
		return;
	}
	copy = text_of(flat.data, flat.len);
	demand(job_unfold(copy, flat.len, &job, &e) == 0);
	demand(strcmp(job.cwd, json_str(json_get(request, "cwd"))) == 0);
	check_argv(&job, request);
	if (json_get(request, "env"))
		json_each(json_get(request, "env"), check_variable, &job);
	free(copy);
}

static void look_at_start(const char *text, size_t len)
{
	auto_json struct json *request = NULL;
	struct err e = ERR_INIT;
	const struct json *op;

	if (json_parse(text, len, &request, &e) < 0 || json_type(request) != JSON_OBJECT)
		return;
	op = json_get(request, "op");
	if (op && json_type(op) == JSON_STRING && strcmp(json_str(op), "exec") == 0)
		check_exec(request);
}

static void note(unsigned int type, unsigned int id, const struct buf *payload)
{
	const struct frame f = { type, id, payload->data, payload->len };

	calls[id].starts += type == FRAME_START;
	calls[id].room += type == FRAME_START ? FRAME_WINDOW : 0;
	calls[id].room += type == FRAME_CREDIT ? frame_number(&f) : 0;
	calls[id].input += type == FRAME_INPUT ? payload->len : 0;
	calls[id].pings += type == FRAME_PING;
	if (type == FRAME_START && payload->len)
		look_at_start(payload->data, payload->len);
}

static void put_payload(struct buf *out, const char *data, size_t len, const char *output)
{
	const char *at;

	while ((at = memmem(data, len, "OUT", 3))) {
		buf_add(out, data, (size_t)(at - data));
		buf_adds(out, output);
		len -= (size_t)(at - data) + 3;
		data = at + 3;
	}
	buf_add(out, data, len);
}

static void put_frames(struct buf *out, const uint8_t *at, size_t size, const char *output)
{
	const uint8_t *end = at + size;

	while (end - at >= 3) {
		auto_buf struct buf payload = BUF_INIT(SENT_MAX);
		size_t len = (size_t)at[1] << 8 | at[2];
		unsigned int id = at[0] >> 4, type = at[0] & 15;

		at += 3;
		if (len > (size_t)(end - at))
			len = (size_t)(end - at);
		put_payload(&payload, (const char *)at, len, output);
		type = type < 8 ? type : type - 8 + FRAME_READY - 1;
		if (type)
			frame_put(out, type, id, payload.data, payload.len);
		else
			buf_add(out, payload.data, payload.len);
		note(type, id, &payload);
		at += len;
	}
}

/* -- what is answered ------------------------------------------------------------------------- */

static void hear(const struct frame *f)
{
	struct err e = ERR_INIT;

	demand(f->call < CALLS);
	if (f->type == FRAME_EXIT) {
		demand(++calls[f->call].exits <= calls[f->call].starts);
		demand(json_check(f->payload, f->len, &e) == 0 && f->payload[0] == '{');
	} else if (f->type == FRAME_STDOUT) {
		demand(f->len && f->len <= calls[f->call].room);
		calls[f->call].room -= f->len;
	} else if (f->type == FRAME_CREDIT) {
		calls[f->call].granted += frame_number(f);
		demand(calls[f->call].granted <= calls[f->call].input);
	} else {
		demand(f->type == FRAME_PONG && f->len == 4 && calls[f->call].pings-- > 0);
	}
}

/* Bytes without a frame around them may have been frames, of which nobody knows here. */
static bool is_known(const uint8_t *at, size_t size)
{
	const uint8_t *end = at + size;

	while (end - at >= 3) {
		if (!(at[0] & 15))
			return false;
		at += 3 + ((size_t)at[1] << 8 | at[2]);
		if (at > end)
			break;
	}
	return true;
}

static bool hear_all(int fd, struct buf *rest, bool known)
{
	char *at = buf_extend(rest, 65536);
	ssize_t n = at ? read(fd, at, 65536) : -1;
	struct err e = ERR_INIT;
	struct frame f;
	size_t len;

	demand(at);
	buf_truncate(rest, rest->len - 65536 + (size_t)(n > 0 ? n : 0));
	while (rest->len && frame_get(rest->data, rest->len, &f, &len, &e) == 1) {
		demand(f.type >= FRAME_READY || f.type == FRAME_CREDIT);
		if (known)
			hear(&f);
		buf_consume(rest, len);
	}
	demand(!e.code);
	return n > 0;
}

/* -- its life --------------------------------------------------------------------------------- */

static void on_end(void)
{
	demand(!"the end of an input that is open");
}

static void live(const int in[2], const int out[2], struct buf *rest, bool known)
{
	int quiet = 0, unread = 0;

	loop_open();
	channel_open(in[0], out[1], calls_frame, on_end);
	for (int turns = 0; quiet < 3; turns++) {
		struct turn t = { .now_ms = clock_mono_ms() };

		demand(turns < TURNS_MAX);
		calls_turn(&t);
		channel_flush();
		quiet = hear_all(out[0], rest, known) ? 0 : quiet + 1;
		loop_wait(0);
		demand(ioctl(in[0], FIONREAD, &unread) == 0);
		if (unread || (t.wake_ms && t.wake_ms <= t.now_ms))
			quiet = 0;
	}
}

/* Nothing is left of what a guest names itself: ".cloister-", a UUID and a suffix. */
static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	const char *name = path + ftw->base;

	(void)st;
	(void)type;
	demand(strncmp(name, ".cloister-", 10) != 0 || strlen(name) != 50);
	return ftw->level ? remove(path) : 0;
}

static void fill_root(void)
{
	auto_close int fd = open("/a", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	demand(fd >= 0 && write(fd, "0123456789", 10) == 10);
	demand(mkdir("/d", 0755) == 0 && mkfifo("/p", 0644) == 0 && symlink("a", "/l") == 0);
}

/* In a root with a file, a directory, a FIFO and a link. */
static void live_through(const struct buf *frames, const int in[2], const int out[2], bool known)
{
	auto_buf struct buf rest = BUF_INIT((size_t)1 << 20);

	demand(write(in[1], frames->data, frames->len) == (ssize_t)frames->len);
	fill_root();
	guest.lives = true;
	if (!setjmp(guest.death))
		live(in, out, &rest, known);
	guest.lives = false;
	calls_close();
	channel_close();
	loop_close();
	demand(nftw("/", remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0);
}

static void run(const uint8_t *data, size_t size)
{
	auto_buf struct buf frames = BUF_INIT(SENT_MAX);
	struct spool *kept = spool_new(NULL, "true");
	int in[2], out[2], free_fd = lowest_fd();

	demand(kept && pipe2(in, O_CLOEXEC | O_NONBLOCK) == 0);
	demand(pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0);
	demand(fcntl(in[1], F_SETPIPE_SZ, SENT_MAX) >= 0);
	spool_add(kept, "what it wrote", 13);
	spool_end(kept, json_new_object());
	memset(calls, 0, sizeof(calls));
	put_frames(&frames, data, size, kept->id);
	demand(!buf_failed(&frames));
	live_through(&frames, in, out, is_known(data, size));
	spool_close();
	demand(close(in[1]) == 0 && close(out[0]) == 0);
	demand(lowest_fd() == free_fd);
}

/* -- the first frame --------------------------------------------------------------------------- */

static void count_member(void *ctx, const char *key, const struct json *value)
{
	(void)key;
	(void)value;
	++*(size_t *)ctx;
}

/* Field by field. */
static bool is_hello(const char *text, size_t len)
{
	auto_json struct json *v = NULL;
	struct err e = ERR_INIT;
	const struct json *tenant;
	size_t n = 0;

	if (json_parse(text, len, &v, &e) < 0 || json_type(v) != JSON_OBJECT)
		return false;
	json_each(v, count_member, &n);
	tenant = json_get(v, "tenant");
	return n == 3 && json_int(json_get(v, "version")) == 1 &&
	       json_int(json_get(v, "processes")) > 0 && tenant && json_str(tenant) &&
	       uuid_valid(json_str(tenant), json_str_len(tenant));
}

/* What was taken, written again, is the same to another library. */
static void check_hello(const char *text, size_t len)
{
	const struct frame hello = { FRAME_HELLO, 0, text, (uint32_t)len };
	struct frame other = hello;
	struct hello got;
	struct err e = ERR_INIT;
	char again[128];

	if (hello_read(&hello, &got, &e) == 0) {
		(void)snprintf(again, sizeof(again),
		               "{\"tenant\":\"%s\",\"version\":1,\"processes\":%zu}",
		               got.tenant.text, got.processes);
		demand(is_hello(text, len));
		demand(other_json_same(again, strlen(again), text, len));
	} else {
		demand(!is_hello(text, len) && e.code == FAULT_INVALID && e.text[0]);
	}
	other.call = 1;
	demand(hello_read(&other, &got, &e) < 0);
	other = hello;
	other.type = FRAME_START;
	demand(hello_read(&other, &got, &e) < 0);
}

static void work(const uint8_t *data, size_t size)
{
	struct rlimit files = { 1024, 1024 };
	static bool begun;

	if (!begun)
		pool_open(0, &files);
	begun = true;
	guest.thread = pthread_self();
	run(data, size < 65536 ? size : 65536);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_job struct job job = { .cwd = NULL };
	struct err e = ERR_INIT;
	char *flat = text_of(data, size);

	(void)signal(SIGPIPE, SIG_IGN);
	if (job_unfold(flat, size, &job, &e) == 0)
		demand(job.cwd && job.argv[0]);
	check_hello(flat, size);
	in_own_root(work, data, size);
	free(flat);
	return 0;
}
