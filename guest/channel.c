#include "guest/channel.h"

#include "guest/fault.h"
#include "guest/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define READ_CHUNK  65536
#define ROOM_BYTES  (256U << 10) /* no data is queued behind that much */
#define PAUSE_BYTES (1U << 20)   /* no input is read behind that much */
/* Above both: the frames that one read can provoke, each of them small. */
#define QUEUE_MAX (16U << 20)

static struct {
	struct source in;
	struct source out;
	struct buf input;
	struct buf queue;
	size_t written; /* bytes of the queue that are gone already */
	void (*on_frame)(const struct frame *f);
	void (*on_end)(void);
} channel;

static size_t queued(void)
{
	return channel.queue.len - channel.written;
}

static void take_frames(void)
{
	size_t used = 0, size;
	struct err e = ERR_INIT;
	struct frame f;
	int got;

	while ((got = frame_get(channel.input.data + used, channel.input.len - used, &f, &size,
	                        &e)) > 0) {
		used += size;
		channel.on_frame(&f);
	}
	if (got < 0)
		fault_die(GUEST_EXIT_PROTOCOL, "the daemon sent no frame: %s", e.text);
	buf_consume(&channel.input, used);
}

static void input_ready(struct source *s, uint32_t events)
{
	char *at = buf_extend(&channel.input, READ_CHUNK);
	ssize_t n;

	(void)events;
	if (!at)
		fault_die(GUEST_EXIT_START, "no memory for a frame");
	n = read(s->fd, at, READ_CHUNK);
	channel.input.len -= READ_CHUNK - (size_t)(n > 0 ? n : 0);
	if (n > 0)
		take_frames();
	else if (n == 0)
		channel.on_end();
	else if (errno != EAGAIN && errno != EINTR)
		fault_die(GUEST_EXIT_PROTOCOL, "read from the daemon: %s", strerror(errno));
}

static void output_ready(struct source *s, uint32_t events)
{
	(void)s;
	(void)events;
	channel_flush();
}

void channel_open(int in, int out, void (*on_frame)(const struct frame *f), void (*on_end)(void))
{
	source_init(&channel.in, in, input_ready);
	source_init(&channel.out, out, output_ready);
	channel.input = (struct buf)BUF_INIT(FRAME_HEADER_SIZE + FRAME_CONTROL_MAX + READ_CHUNK);
	channel.queue = (struct buf)BUF_INIT(QUEUE_MAX);
	channel.on_frame = on_frame;
	channel.on_end = on_end;
	source_watch(&channel.in, EPOLLIN);
}

void channel_close(void)
{
	source_close(&channel.in);
	source_close(&channel.out);
	buf_release(&channel.input);
	buf_release(&channel.queue);
}

bool channel_room(void)
{
	return queued() < ROOM_BYTES;
}

static struct buf *open_queue(void)
{
	if (channel.written > ROOM_BYTES) {
		buf_consume(&channel.queue, channel.written);
		channel.written = 0;
	}
	return &channel.queue;
}

static void check_queue(void)
{
	if (buf_failed(&channel.queue))
		fault_die(GUEST_EXIT_START, "no memory for a frame to the daemon");
}

void channel_send(enum frame_type type, uint64_t call, const void *payload, size_t len)
{
	frame_put(open_queue(), type, call, payload, len);
	check_queue();
}

void channel_send_credit(uint64_t call, uint32_t bytes)
{
	frame_put_credit(open_queue(), call, bytes);
	check_queue();
}

void channel_send_json(enum frame_type type, uint64_t call, struct json *value)
{
	auto_buf struct buf text = BUF_INIT(FRAME_CONTROL_MAX);

	json_write(value, &text);
	json_free(&value);
	if (buf_failed(&text))
		fault_die(GUEST_EXIT_START, "no memory for a control frame");
	channel_send(type, call, text.data, text.len);
}

static void write_some(void)
{
	ssize_t n = write(channel.out.fd, channel.queue.data + channel.written, queued());

	if (n >= 0)
		channel.written += (size_t)n;
	else if (errno != EAGAIN && errno != EINTR)
		fault_die(GUEST_EXIT_PROTOCOL, "write to the daemon: %s", strerror(errno));
}

void channel_flush(void)
{
	if (queued())
		write_some();
	if (!queued()) {
		buf_reset(&channel.queue);
		channel.written = 0;
	}
	source_watch(&channel.out, queued() ? EPOLLOUT : 0);
	source_watch(&channel.in, queued() < PAUSE_BYTES ? EPOLLIN : 0);
}
