/*
 * What a guest is asked: frames of the daemon, for the real channel and calls, in a root of
 * their own, in which there is nothing that could be run.
 *
 * An input is a row of frames: a byte of call id and type, two of length, and a payload;
 * type 0 is bytes without a frame around them.  Where a payload has "OUT", the id of an output
 * that is kept takes its place.  What the guest answers must be what docs/protocol.md allows,
 * no file of its own may be left behind, and no descriptor.
 */
#include "fuzz/files.h"
#include "fuzz/fuzz.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "guest/call.h"
#include "guest/channel.h"
#include "guest/fault.h"
#include "guest/job.h"
#include "guest/loop.h"
#include "guest/pool.h"
#include "guest/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALLS     16
#define SENT_MAX  ((size_t)1 << 20)
#define TURNS_MAX 20000 /* a guest that has nothing to do comes to rest long before */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	const uint8_t *data;
	size_t size;
	bool waits;
	pthread_t thread;
	jmp_buf death;
	bool lives;
} guest = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER };

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

/* -- the thread that has a root of its own ---------------------------------------------------- */

static void enter_root(void)
{
	const char *dir = input_dir();
	struct rlimit files = { 1024, 1024 };
	sigset_t all;

	(void)sigemptyset(&all);
	(void)sigaddset(&all, SIGALRM); /* the fuzzer's */
	(void)sigaddset(&all, SIGINT);
	demand(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0 && unshare(CLONE_NEWNS) == 0);
	demand(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	demand(mount("none", dir, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
	             "size=8m,nr_inodes=2000") == 0);
	demand(chroot(dir) == 0 && chdir("/") == 0);
	(void)umask(022);
	pool_open(0, &files);
}

static void *work(void *ctx)
{
	(void)ctx;
	enter_root();
	pthread_mutex_lock(&guest.lock);
	for (;;) {
		while (!guest.waits)
			pthread_cond_wait(&guest.changed, &guest.lock);
		run(guest.data, guest.size);
		guest.waits = false;
		pthread_cond_broadcast(&guest.changed);
	}
	return NULL;
}

static void begin(void)
{
	static bool begun;

	if (begun)
		return;
	begun = true;
	(void)input_dir();
	(void)signal(SIGPIPE, SIG_IGN);
	demand(pthread_create(&guest.thread, NULL, work, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_job struct job job = { .cwd = NULL };
	struct err e = ERR_INIT;
	char *flat = text_of(data, size);

	if (job_unfold(flat, size, &job, &e) == 0)
		demand(job.cwd && job.argv[0]);
	begin();
	pthread_mutex_lock(&guest.lock);
	guest.data = data;
	guest.size = size < 65536 ? size : 65536;
	guest.waits = true;
	pthread_cond_broadcast(&guest.changed);
	while (guest.waits)
		pthread_cond_wait(&guest.changed, &guest.lock);
	pthread_mutex_unlock(&guest.lock);
	free(flat);
	return 0;
}
