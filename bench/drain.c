/*
 * One call of a sandbox, taken to its end as the daemon would, without looking at the bytes.
 *
 *   drain FROM_FD TO_FD CALL JSON
 *
 * The descriptors are those of a cloister-runner.  Prints the exit frame's payload with the
 * bytes received and the microseconds it took.
 */
#include "bench/net.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/fd.h"
#include "common/frame.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GRANT (FRAME_WINDOW / 4) /* taken before that much is granted again */

static struct {
	int from, to;
	uint64_t call, bytes;
	uint32_t taken;
	char data[1 << 20];
	size_t len;
} all;

static void flush(struct buf *out)
{
	struct err e = ERR_INIT;

	if (buf_failed(out) || fd_write_all(all.to, out->data, out->len, &e) < 0)
		die("cannot write to the sandbox: %s", e.text);
	buf_reset(out);
}

/* True when it was the last frame of the call. */
static bool take_frame(const struct frame *f, struct buf *out)
{
	if (f->call != all.call)
		return false;
	if (f->type == FRAME_EXIT) {
		(void)printf("%.*s\n", (int)f->len, f->payload);
		return true;
	}
	if (f->type != FRAME_STDOUT && f->type != FRAME_STDERR)
		return false;
	all.bytes += f->len;
	all.taken += (uint32_t)f->len;
	if (all.taken >= GRANT) {
		frame_put_credit(out, all.call, all.taken);
		all.taken = 0;
		flush(out);
	}
	return false;
}

static bool take_frames(struct buf *out)
{
	struct err e = ERR_INIT;
	size_t at = 0, size;
	struct frame f;
	bool over = false;
	int got = 0;

	while (!over && (got = frame_get(all.data + at, all.len - at, &f, &size, &e)) > 0) {
		over = take_frame(&f, out);
		at += size;
	}
	if (got < 0)
		die("%s", e.text);
	all.len -= at;
	memmove(all.data, all.data + at, all.len);
	return over;
}

int main(int argc, char **argv)
{
	auto_buf struct buf out = BUF_INIT(1 << 20);
	uint64_t begin;

	if (argc != 5)
		die("usage: drain FROM_FD TO_FD CALL JSON");
	all.from = (int)number(argv[1]);
	all.to = (int)number(argv[2]);
	all.call = number(argv[3]);
	begin = clock_mono_us();
	frame_put(&out, FRAME_START, all.call, argv[4], strlen(argv[4]));
	frame_put(&out, FRAME_END, all.call, NULL, 0);
	flush(&out);
	do {
		ssize_t n = read(all.from, all.data + all.len, sizeof(all.data) - all.len);

		if (n <= 0)
			die("the sandbox ended");
		all.len += (size_t)n;
	} while (!take_frames(&out));
	(void)printf("{\"bytes\":%llu,\"us\":%llu}\n", (unsigned long long)all.bytes,
	             (unsigned long long)(clock_mono_us() - begin));
	return 0;
}
