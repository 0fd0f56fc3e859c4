#include "daemon/http/test_client.h"

#include <malloc.h>

#define FEEDS 1200

/* A source whose events are numbers, each padded to a size. */
static struct feed {
	pthread_mutex_t lock;
	struct stream *handle; /* while it may be woken */
	unsigned int published, sent;
	size_t pad; /* bytes behind the number */
	bool ends;  /* after what is published */
	int attached, closed;
	char *text; /* the event lent to the server */
} feeds[FEEDS];

static atomic_int opened_total, closed_total;

static int feed_next(void *ctx, const char **data, size_t *len)
{
	struct feed *f = ctx;
	int more = 0;

	pthread_mutex_lock(&f->lock);
	free(f->text);
	f->text = NULL;
	if (f->sent < f->published) {
		size_t size = f->pad + 64;
		int n;

		f->text = malloc(size);
		n = snprintf(f->text, size, "id: %u\ndata: ", f->sent++);
		memset(f->text + n, 'x', f->pad);
		memcpy(f->text + n + f->pad, "\n\n", 2);
		*data = f->text;
		*len = (size_t)n + f->pad + 2;
		more = 1;
	} else if (f->ends) {
		more = -1;
	}
	pthread_mutex_unlock(&f->lock);
	return more;
}

static void feed_close(void *ctx)
{
	struct feed *f = ctx;

	pthread_mutex_lock(&f->lock);
	f->handle = NULL;
	f->closed++;
	free(f->text);
	f->text = NULL;
	pthread_mutex_unlock(&f->lock);
	atomic_fetch_add(&closed_total, 1);
}

static void feed_attached(void *ctx, struct stream *stream)
{
	struct feed *f = ctx;

	pthread_mutex_lock(&f->lock);
	f->handle = stream;
	f->attached++;
	pthread_mutex_unlock(&f->lock);
}

static void publish(struct feed *f, unsigned int count)
{
	pthread_mutex_lock(&f->lock);
	f->published += count;
	if (f->handle)
		stream_wake(f->handle);
	pthread_mutex_unlock(&f->lock);
}

static void handle_events(const struct http_request *req, struct http_response *res, void *ctx)
{
	struct feed *f = &feeds[strtoul(req->params[0], NULL, 10) % FEEDS];

	(void)ctx;
	atomic_fetch_add(&opened_total, 1);
	res->stream = (struct stream_source){ feed_next, feed_close, feed_attached, f };
}

static const struct http_route routes[] = {
	{ "GET", "/v1/events/{feed}", handle_events, HTTP_STREAM },
	{ "GET", "/v1/inline/{feed}", handle_events, HTTP_STREAM | HTTP_INLINE },
	{ 0 },
};

static struct http_server *server;

static void reset_feeds(void)
{
	for (size_t i = 0; i < FEEDS; i++) {
		feeds[i] = (struct feed){ 0 };
		pthread_mutex_init(&feeds[i].lock, NULL);
	}
	atomic_store(&opened_total, 0);
	atomic_store(&closed_total, 0);
}

static void start_with(const struct http_conf *conf)
{
	reset_feeds();
	server = test_server(conf);
}

static int set_up(void **state)
{
	struct http_conf conf = test_conf(routes);

	(void)state;
	conf.max_queued = FEEDS;
	conf.max_streams = 4 * FEEDS; /* churn() connects before it sees the last ones go */
	start_with(&conf);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	http_stop(&server);
	return 0;
}

static int closes_of(struct feed *f)
{
	int n;

	pthread_mutex_lock(&f->lock);
	n = f->closed;
	pthread_mutex_unlock(&f->lock);
	return n;
}

static int attached_to(struct feed *f)
{
	int n;

	pthread_mutex_lock(&f->lock);
	n = f->attached;
	pthread_mutex_unlock(&f->lock);
	return n;
}

static void request_stream(int fd, unsigned int feed)
{
	char text[200];

	(void)snprintf(text, sizeof(text), "GET /v1/events/%u HTTP/1.1\r\n" AUTH "\r\n", feed);
	say(fd, text);
}

/* Read exactly the head and the first comment. */
static void read_head(int fd)
{
	char text[2048];
	size_t len = 0;

	do {
		ssize_t n = hear(fd, text + len, 1, PATIENCE);

		if (n <= 0)
			fail_msg("no stream: %.*s", (int)len, text);
		len += (size_t)n;
		text[len] = '\0';
	} while (len < sizeof(text) - 1 && !strstr(text, "\r\n\r\n: ok\n\n"));
	assert_non_null(strstr(text, "HTTP/1.1 200 OK\r\n"));
	assert_non_null(strstr(text, "Content-Type: text/event-stream\r\n"));
	assert_non_null(strstr(text, "Cache-Control: no-cache\r\n"));
	assert_non_null(strstr(text, "X-Accel-Buffering: no\r\n"));
	assert_non_null(strstr(text, "X-Request-ID: "));
	assert_null(strstr(text, "Transfer-Encoding"));
	assert_null(strstr(text, "Content-Length"));
}

static int open_stream(unsigned int feed)
{
	int fd = dial(server);

	request_stream(fd, feed);
	read_head(fd);
	return fd;
}

/*
 * Wait until nothing is left of clients that have gone, which there were none of when `fds`
 * descriptors were open.  Connections are taken in order: behind the last one none waits.
 */
static void wait_all_gone(int fds)
{
	uint64_t deadline = clock_mono_ms() + PATIENCE;

	close(open_stream(FEEDS - 1));
	while (atomic_load(&closed_total) != atomic_load(&opened_total) || open_fds() != fds) {
		if (clock_mono_ms() > deadline)
			fail_msg("%d streams opened, %d closed; %d descriptors, %d before",
			         atomic_load(&opened_total), atomic_load(&closed_total), open_fds(),
			         fds);
		nap(1);
	}
}

/* Memory is freed a moment after the descriptor is closed. */
static void wait_memory_below(size_t wanted)
{
	uint64_t deadline = clock_mono_ms() + PATIENCE;

	while (mallinfo2().uordblks >= wanted) {
		if (clock_mono_ms() > deadline)
			fail_msg("%zu bytes allocated, less than %zu wanted", mallinfo2().uordblks,
			         wanted);
		nap(1);
	}
}

static void wait_attached(struct feed *f)
{
	for (int i = 0; i < PATIENCE && !attached_to(f); i++)
		nap(1);
	assert_int_equal(attached_to(f), 1);
}

static void expect_text(int fd, const char *wanted)
{
	char text[4096];
	size_t len = 0;

	while (len < strlen(wanted)) {
		ssize_t n = hear(fd, text + len, strlen(wanted) - len, PATIENCE);

		assert_true(n > 0);
		len += (size_t)n;
	}
	text[len] = '\0';
	assert_string_equal(text, wanted);
}

static void sends_in_order(void **state)
{
	int fd;

	(void)state;
	publish(&feeds[1], 2); /* before the client is there */
	fd = open_stream(1);
	expect_text(fd, "id: 0\ndata: \n\nid: 1\ndata: \n\n");
	publish(&feeds[1], 1);
	expect_text(fd, "id: 2\ndata: \n\n");
	for (int i = 0; i < 100; i++)
		publish(&feeds[1], 1);
	for (int i = 3; i < 103; i++) {
		char text[64];

		(void)snprintf(text, sizeof(text), "id: %d\ndata: \n\n", i);
		expect_text(fd, text);
	}
	assert_int_equal(closes_of(&feeds[1]), 0);
	close(fd);
	wait_for(&closed_total, 1);
}

static void serves_http_1_0_and_inline_routes(void **state)
{
	int fd = dial(server);

	(void)state;
	publish(&feeds[1], 1);
	say(fd, "GET /v1/inline/1 HTTP/1.0\r\n" AUTH "\r\n");
	read_head(fd);
	expect_text(fd, "id: 0\ndata: \n\n");
	close(fd);
	wait_for(&closed_total, 1);
}

static void ends_when_the_source_ends(void **state)
{
	char c;
	int fd;

	(void)state;
	feeds[1].ends = true;
	publish(&feeds[1], 1);
	fd = open_stream(1);
	expect_text(fd, "id: 0\ndata: \n\n");
	assert_int_equal(hear(fd, &c, 1, PATIENCE), 0);
	wait_for(&closed_total, 1);
	assert_int_equal(closes_of(&feeds[1]), 1);
	close(fd);
}

/* So early that libmicrohttpd still holds its descriptor of the same socket. */
static void ends_at_once(void **state)
{
	int fds = open_fds();

	(void)state;
	for (int i = 0; i < 500; i++) {
		char c;
		int fd = dial(server);

		feeds[i].ends = true;
		request_stream(fd, (unsigned int)i);
		if (i % 2) { /* the others are gone before the stream begins */
			read_head(fd);
			assert_int_equal(hear(fd, &c, 1, PATIENCE), 0);
		}
		close(fd);
	}
	wait_all_gone(fds);
}

/* Every byte arrives once, in order, though the socket takes them in odd pieces. */
static void keeps_what_a_slow_reader_leaves(void **state)
{
	enum {
		EVENTS = 400,
		PAD = 30000
	};
	int fd = dial(server), small = 65536;
	char *piece = malloc(PAD + 64);
	char wanted[32];

	(void)state;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	feeds[1].pad = PAD;
	request_stream(fd, 1);
	read_head(fd);
	publish(&feeds[1], EVENTS);
	nap(50);
	for (int i = 0; i < EVENTS; i++) {
		int n = snprintf(wanted, sizeof(wanted), "id: %d\ndata: ", i);
		size_t size = (size_t)n + PAD + 2, len = 0;

		while (len < size) {
			ssize_t got = hear(fd, piece + len, size - len, PATIENCE);

			assert_true(got > 0);
			len += (size_t)got;
		}
		assert_memory_equal(piece, wanted, (size_t)n);
		for (size_t at = (size_t)n; at < size - 2; at++)
			assert_true(piece[at] == 'x');
		assert_memory_equal(piece + size - 2, "\n\n", 2);
		if (i % 100 == 0)
			nap(20);
	}
	free(piece);
	close(fd);
	wait_for(&closed_total, 1);
}

static void drops_a_client_that_takes_nothing(void **state)
{
	struct http_conf conf = test_conf(routes);
	int stuck, idle;
	uint64_t begin;

	(void)state;
	conf.stall_ms = 400;
	start_with(&conf);
	feeds[1].pad = 100000;
	stuck = open_stream(1);
	idle = open_stream(2);
	begin = clock_mono_ms();
	publish(&feeds[1], 300);
	wait_for(&closed_total, 1);
	assert_true(clock_mono_ms() - begin >= 390);
	assert_int_equal(closes_of(&feeds[1]), 1);
	publish(&feeds[2], 1); /* idle is not stuck */
	expect_text(idle, "id: 0\ndata: \n\n");
	close(stuck);
	close(idle);
}

/* By itself: a heartbeat or a probe would find out after 30 s at the earliest. */
static void notices_clients_that_leave(void **state)
{
	struct linger reset = { .l_onoff = 1 };

	(void)state;
	for (int way = 0; way < 3; way++) {
		int fd = open_stream((unsigned int)way);

		wait_attached(&feeds[way]);
		if (way == 0)
			shutdown(fd, SHUT_WR);
		if (way == 1)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		if (way > 0)
			close(fd);
		wait_for(&closed_total, way + 1);
		assert_int_equal(closes_of(&feeds[way]), 1);
		publish(&feeds[way], 1); /* harmless now */
		if (way == 0)
			close(fd);
	}
}

/* Gone between the request and the hand-over of the socket: closed all the same. */
static void notices_clients_that_leave_early(void **state)
{
	struct linger reset = { .l_onoff = 1 };
	int fds = open_fds();

	(void)state;
	for (int i = 0; i < 200; i++) {
		int fd = dial(server);

		request_stream(fd, (unsigned int)i);
		if (i % 2)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		if (i % 3 == 0)
			nap(1);
		close(fd);
	}
	wait_all_gone(fds);
	for (int i = 0; i < 200; i++)
		assert_in_range(closes_of(&feeds[i]), 0, 1);
}

static void ignores_what_clients_say(void **state)
{
	int fd = open_stream(1);
	char noise[10000] = { 0 };

	(void)state;
	say(fd, "GET /v1/events/2 HTTP/1.1\r\n" AUTH "\r\n");
	say_bytes(fd, noise, sizeof(noise));
	nap(50);
	publish(&feeds[1], 1);
	expect_text(fd, "id: 0\ndata: \n\n");
	assert_int_equal(attached_to(&feeds[2]), 0);
	close(fd);
	wait_for(&closed_total, 1);
}

/* Whether the next thing said is a heartbeat; else it has to be the event `id`. */
static bool hears_beat(int fd, int id)
{
	char text[64], wanted[64];
	size_t len = 0;

	do {
		assert_true(len < sizeof(text) - 1);
		assert_int_equal(hear(fd, text + len, 1, PATIENCE), 1);
		text[++len] = '\0';
	} while (!strstr(text, "\n\n"));
	if (strcmp(text, ": heartbeat\n\n") == 0)
		return true;
	(void)snprintf(wanted, sizeof(wanted), "id: %d\ndata: \n\n", id);
	assert_string_equal(text, wanted);
	return false;
}

static void beats_in_silence(void **state)
{
	struct http_conf conf = test_conf(routes);
	uint64_t begin = clock_mono_ms(), last = begin, least = PATIENCE;
	int fd;

	(void)state;
	conf.heartbeat_ms = 200;
	start_with(&conf);
	fd = open_stream(1);
	for (int i = 0; i < 5; i++) { /* this thread may hear one late, but hardly all */
		uint64_t gap;

		assert_true(hears_beat(fd, 0));
		gap = clock_mono_ms() - last;
		least = gap < least ? gap : least;
		last += gap;
	}
	assert_true(last - begin >= 5L * 200);
	assert_true(least < 1500);
	close(fd);
}

/* How often it beats between `count` events, the first of them `id`, one every 40 ms. */
static int beats_between_events(int fd, int id, int count)
{
	int beats = 0;

	for (int i = id; i < id + count; i++) {
		publish(&feeds[1], 1);
		while (hears_beat(fd, i))
			beats++;
		nap(40);
	}
	return beats;
}

/* (It also beats when this thread stands still, but does not each time.) */
static void beats_only_in_silence(void **state)
{
	enum {
		TRIES = 10,
		EVENTS = 15
	};
	struct http_conf conf = test_conf(routes);
	int fd, beats = 1;

	(void)state;
	conf.heartbeat_ms = 200;
	start_with(&conf);
	fd = open_stream(1);
	for (int i = 0; i < TRIES && beats > 0; i++)
		beats = beats_between_events(fd, i * EVENTS, EVENTS);
	assert_int_equal(beats, 0);
	close(fd);
}

static void bounds_streams(void **state)
{
	struct http_conf conf = test_conf(routes);
	int a, b;

	(void)state;
	conf.max_streams = 2;
	start_with(&conf);
	a = open_stream(1);
	b = open_stream(2);
	expect(server, "GET /v1/events/3 HTTP/1.1\r\n" AUTH "\r\n", 429,
	       "\"code\":\"event_subscriber_limit\"");
	wait_for(&closed_total, 1);
	assert_int_equal(closes_of(&feeds[3]), 1);
	close(a);
	wait_for(&closed_total, 2);
	a = open_stream(4);
	close(a);
	close(b);
	wait_for(&closed_total, 4);
}

/* -- many at once, while other threads wake them ----------------------------------------- */
static atomic_bool churning;

static void *publish_everywhere(void *arg)
{
	unsigned int step = *(unsigned int *)arg;

	for (unsigned int i = 0; atomic_load(&churning); i = (i + step) % FEEDS)
		publish(&feeds[i], 1);
	return NULL;
}

static void churn(unsigned int rounds, unsigned int width)
{
	struct linger reset = { .l_onoff = 1 };
	int fds[FEEDS];

	for (unsigned int round = 0; round < rounds; round++) {
		for (unsigned int i = 0; i < width; i++) {
			fds[i] = dial(server);
			request_stream(fds[i], i);
		}
		for (unsigned int i = 0; i < width; i += 7)
			read_head(fds[i]);
		for (unsigned int i = 0; i < width; i++) {
			if (i % 3 == 0)
				setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
			close(fds[i]);
		}
	}
}

static void survives_churn_of_1000_streams(void **state)
{
	pthread_t publishers[2];
	unsigned int steps[2] = { 1, 7 };
	int fds = open_fds();
	size_t before;

	(void)state;
	churn(1, 10);
	wait_all_gone(fds);
	before = mallinfo2().uordblks;
	atomic_store(&churning, true);
	for (size_t i = 0; i < 2; i++)
		pthread_create(&publishers[i], NULL, publish_everywhere, &steps[i]);
	churn(3, 1000);
	wait_all_gone(fds);
	atomic_store(&churning, false);
	for (size_t i = 0; i < 2; i++)
		pthread_join(publishers[i], NULL);
	assert_true(atomic_load(&opened_total) > 400);
	wait_memory_below(before + 65536);
}

/* (Always true where a sanitizer replaces malloc, which then counts nothing.) */
static void costs_little_when_idle(void **state)
{
	enum {
		STREAMS = 1000
	};
	int fds[STREAMS + 1];
	size_t before;

	(void)state;
	fds[STREAMS] = open_stream(STREAMS);
	wait_attached(&feeds[STREAMS]);
	before = mallinfo2().uordblks;
	for (unsigned int i = 0; i < STREAMS; i++)
		fds[i] = open_stream(i);
	for (unsigned int i = 0; i < STREAMS; i++)
		wait_attached(&feeds[i]);
	wait_memory_below(before + (size_t)STREAMS * 1024);
	for (unsigned int i = 0; i <= STREAMS; i++)
		close(fds[i]);
	wait_for(&closed_total, STREAMS + 1);
}

static void closes_streams_at_stop(void **state)
{
	enum {
		STREAMS = 50
	};
	pthread_t publisher;
	unsigned int step = 1;
	int fds[STREAMS], late[STREAMS];
	char piece[4096];

	(void)state;
	for (unsigned int i = 0; i < STREAMS; i++)
		fds[i] = open_stream(i);
	http_drain(server); /* streams go on */
	publish(&feeds[0], 1);
	expect_text(fds[0], "id: 0\ndata: \n\n");
	atomic_store(&churning, true);
	pthread_create(&publisher, NULL, publish_everywhere, &step);
	for (unsigned int i = 0; i < STREAMS; i++) {
		late[i] = dial(server);
		request_stream(late[i], STREAMS + i);
	}
	http_stop(&server);
	atomic_store(&churning, false);
	pthread_join(publisher, NULL);
	assert_int_equal(atomic_load(&closed_total), atomic_load(&opened_total));
	for (unsigned int i = 0; i < STREAMS; i++) {
		assert_int_equal(closes_of(&feeds[i]), 1);
		while (hear(fds[i], piece, sizeof(piece), PATIENCE) > 0)
			;
		assert_int_equal(hear(fds[i], piece, 1, 0), 0);
		close(fds[i]);
		close(late[i]);
	}
}

int main(void)
{
#define SERVED(test)   cmocka_unit_test_setup_teardown(test, set_up, tear_down)
#define STARTING(test) cmocka_unit_test_teardown(test, tear_down)
	const struct CMUnitTest tests[] = {
		SERVED(sends_in_order),
		SERVED(serves_http_1_0_and_inline_routes),
		SERVED(ends_when_the_source_ends),
		SERVED(ends_at_once),
		SERVED(keeps_what_a_slow_reader_leaves),
		STARTING(drops_a_client_that_takes_nothing),
		SERVED(notices_clients_that_leave),
		SERVED(notices_clients_that_leave_early),
		SERVED(ignores_what_clients_say),
		STARTING(beats_in_silence),
		STARTING(beats_only_in_silence),
		STARTING(bounds_streams),
		SERVED(survives_churn_of_1000_streams),
		SERVED(costs_little_when_idle),
		SERVED(closes_streams_at_stop),
	};

	return RUN_TESTS(tests);
}
