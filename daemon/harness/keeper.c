/*
 * The thread that looks after the processes that nobody has taken: it hears of those that
 * end, winds up cancelled runs, and kills what does not end in time.  It never blocks on a
 * harness, and reads at most what the credit of a call lets through from one before it
 * looks at the next.
 */
#include "common/clock.h"
#include "common/log.h"
#include "daemon/harness/resident.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#define KILL_MS   1000 /* between two looks at one that was killed */
#define LINES_MAX 1000 /* of one process, before the next one's turn */

static void free_run(struct resident *r)
{
	if (r->parking.run)
		r->parking.free(r->parking.run);
	r->parking.run = NULL;
}

void resident_end(struct harnesses *h, struct resident *r)
{
	free_run(r);
	r->state = RESIDENT_ENDING;
	r->deadline = clock_mono_ms() + HARNESS_END_MS;
	if (r->process)
		process_shutdown(r->process);
	harness_wake(h);
}

void resident_cancel(struct harnesses *h, struct resident *r)
{
	auto_buf struct buf line = BUF_INIT(500);
	struct err e = ERR_INIT;

	memcpy(r->run_id, r->parking.turn.text, sizeof(r->parking.turn.text));
	free_run(r);
	message_put_cancel(&line, r->run_id, NULL);
	if (process_send(r->process, &line, &e)) {
		process_kill(r->process);
		r->killed = true;
		r->state = RESIDENT_ENDING;
	} else {
		r->deadline = clock_mono_ms() + HARNESS_WIND_MS;
		r->state = RESIDENT_WINDING;
	}
	harness_wake(h);
}

static void kill_one(struct resident *r)
{
	if (!r->killed)
		process_kill(r->process);
	r->killed = true;
	r->state = RESIDENT_ENDING;
}

static bool is_result(const struct resident *r)
{
	auto_message struct message m = { .doc = NULL };
	const struct buf *line = process_line(r->process);

	message_read(line->data ? line->data : "", line->len, &m);
	return m.type == MESSAGE_RESULT && m.run_id && strcmp(m.run_id, r->run_id) == 0;
}

/* Read on until the result of the cancelled run; true when there may be more at once. */
static bool wind(struct harnesses *h, struct resident *r, uint64_t now)
{
	for (int i = 0; i < LINES_MAX; i++) {
		switch (process_next(r->process, NULL, now)) {
		case PROCESS_LINE:
			if (!is_result(r))
				continue;
			process_rest(r->process, true);
			r->state = RESIDENT_IDLE;
			r->used_ms = now;
			pthread_cond_broadcast(&h->changed);
			return false;
		case PROCESS_TOO_LONG:
			continue;
		case PROCESS_TIMEOUT:
		case PROCESS_CANCELLED:
			if (now < r->deadline)
				return false;
			log_info("harness of session %s is killed: it did not end a cancelled run",
			         r->session.text);
			kill_one(r);
			return false;
		case PROCESS_ENDED:
			r->state = RESIDENT_ENDING;
			return true;
		}
	}
	if (now >= r->deadline)
		kill_one(r);
	return true;
}

/* True once it is gone. */
static bool end(struct resident *r, uint64_t now)
{
	if (!r->process || !process_drain(r->process))
		return true;
	if (now >= r->deadline)
		kill_one(r);
	return false;
}

static void report(struct harnesses *h, struct resident *r)
{
	if (r->stirred)
		return;
	r->stirred = true;
	h->conf.stirred(h->conf.ctx, &r->tenant, &r->parking.turn);
}

/* (locked) True when there is more to do at once. */
static bool look_at(struct harnesses *h, struct resident *r, uint64_t now)
{
	switch (r->state) {
	case RESIDENT_TAKEN:
		break;
	case RESIDENT_IDLE:
		if (process_look(r->process) == PROCESS_OVER) {
			r->state = RESIDENT_ENDING;
			return true;
		}
		break;
	case RESIDENT_PARKED:
		if (process_look(r->process) != PROCESS_SILENT)
			report(h, r);
		break;
	case RESIDENT_WINDING:
		return wind(h, r, now);
	case RESIDENT_ENDING:
		break;
	}
	return false;
}

/* (locked) Whether one was ending and is gone, which frees it. */
static bool bury(struct harnesses *h, struct resident **at, uint64_t now)
{
	struct resident *r = *at;

	if (r->state != RESIDENT_ENDING || !end(r, now))
		return false;
	*at = r->next;
	h->count--;
	process_close(&r->process);
	free(r);
	pthread_cond_broadcast(&h->changed);
	return true;
}

static int sooner(int a, uint64_t deadline)
{
	int b = clock_left_ms(deadline);

	return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* (locked) Do what is due; when to look again, -1 = when something happens. */
static int look(struct harnesses *h)
{
	uint64_t now = clock_mono_ms();
	struct resident **at = &h->first;
	int wait = -1;

	while (*at) {
		struct resident *r = *at;

		if (look_at(h, r, now))
			wait = 0;
		if (bury(h, at, now))
			continue;
		if (r->state == RESIDENT_WINDING || (r->state == RESIDENT_ENDING && !r->killed))
			wait = sooner(wait, r->deadline);
		else if (r->state == RESIDENT_ENDING)
			wait = sooner(wait, now + KILL_MS);
		at = &r->next;
	}
	return wait;
}

/* (locked) Descriptors to wait for; NULL without memory. */
static struct pollfd *gather(struct harnesses *h, nfds_t *ret_n)
{
	struct pollfd *fds = calloc(h->count + 1, sizeof(*fds));
	nfds_t n = 0;

	if (!fds)
		return NULL;
	fds[n++] = (struct pollfd){ .fd = h->wake, .events = POLLIN };
	for (const struct resident *r = h->first; r; r = r->next)
		if (r->state != RESIDENT_TAKEN && r->process && n <= h->count)
			fds[n++] =
				(struct pollfd){ .fd = process_fd(r->process), .events = POLLIN };
	*ret_n = n;
	return fds;
}

/* (locked) The end of the daemon: all are killed, and then each is waited for. */
static void close_all(struct harnesses *h)
{
	for (struct resident *r = h->first; r; r = r->next)
		if (r->process)
			process_kill(r->process);
	while (h->first) {
		struct resident *r = h->first;

		h->first = r->next;
		h->count--;
		free_run(r);
		process_close(&r->process);
		free(r);
	}
}

void *harness_keeper(void *harnesses)
{
	struct harnesses *h = harnesses;
	struct pollfd *fds;
	eventfd_t count;
	nfds_t n = 0;
	int wait;

	pthread_mutex_lock(&h->lock);
	while (!h->stopping) {
		wait = look(h);
		fds = gather(h, &n);
		pthread_mutex_unlock(&h->lock);
		/* What was given back meanwhile has written to wake. */
		(void)poll(fds, n, fds ? wait : 1000);
		if (fds && fds[0].revents)
			(void)eventfd_read(h->wake, &count);
		free(fds);
		pthread_mutex_lock(&h->lock);
	}
	close_all(h);
	pthread_mutex_unlock(&h->lock);
	return NULL;
}
