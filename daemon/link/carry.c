#include "daemon/link/carry.h"

#include "common/clock.h"
#include "daemon/link/link.h"
#include "daemon/link/reach.h"
#include "daemon/link/sasl.h"

#include <errno.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

_Static_assert(CARRY_BUFFER >= SASL_MESSAGE_MAX, "a whole message before the login is over");

/* data[from..fit) may be sent; what stands behind that is not judged yet. */
struct flow {
	size_t from, fit, len;
	uint8_t data[CARRY_BUFFER];
};

enum stage {
	LOGIN,   /* each message of the server is judged */
	SESSION, /* bytes */
	REFUSED, /* in the login; e says why */
};

struct carriage {
	SSL *tls;
	int server;
	int client;
	struct err *e;
	enum stage stage;
	enum sasl_login login;
	struct flow out;         /* to the server */
	struct flow in;          /* from it */
	short to_read, to_write; /* events that TLS waits for at the server's socket */
	bool client_ended;       /* nothing more comes of it */
	bool client_gone;        /* nor does it take anything */
	bool server_ended;
	bool answered;      /* it has said something */
	bool cancels;       /* the client has asked for what has no answer */
	uint64_t answer_by; /* monotonic, of the next message of the login; 0 = it is over */
	uint64_t last_by;   /* likewise, of the last bytes; 0 = neither has closed */
};

static bool is_waiting(const struct flow *f)
{
	return f->from < f->fit;
}

static void sent(struct flow *f, size_t n)
{
	f->from += n;
	if (f->from < f->fit)
		return;
	/* A part of a message goes to the front. */
	f->len -= f->from;
	memmove(f->data, f->data + f->from, f->len);
	f->from = f->fit = 0;
}

static void hurry(struct carriage *c)
{
	if (!c->last_by)
		c->last_by = clock_mono_ms() + CARRY_LINGER_MS;
}

static uint64_t deadline(const struct carriage *c)
{
	if (c->answer_by && (!c->last_by || c->answer_by < c->last_by))
		return c->answer_by;
	return c->last_by;
}

/* -- towards the server ------------------------------------------------------------------------ */

/* A CancelRequest: the server closes without a word. */
static bool is_cancel(const struct flow *out)
{
	static const uint8_t start[] = { 0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e };

	return out->len >= sizeof(start) && memcmp(out->data, start, sizeof(start)) == 0;
}

static bool take_from_client(struct carriage *c)
{
	ssize_t n;

	if (c->client_ended || c->server_ended || is_waiting(&c->out))
		return false;
	n = recv(c->client, c->out.data, sizeof(c->out.data), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n > 0) {
		c->out.len = c->out.fit = (size_t)n;
		c->cancels |= !c->answered && is_cancel(&c->out);
	} else {
		c->client_ended = true;
		hurry(c);
	}
	return true;
}

/* What TLS waits for; 0 when the session is over. */
static short awaited(const SSL *tls, int rc)
{
	switch (SSL_get_error(tls, rc)) {
	case SSL_ERROR_WANT_READ:
		return POLLIN;
	case SSL_ERROR_WANT_WRITE:
		return POLLOUT;
	default:
		return 0;
	}
}

static bool give_to_server(struct carriage *c)
{
	int n;

	if (c->server_ended || !is_waiting(&c->out))
		return false;
	ERR_clear_error();
	n = SSL_write(c->tls, c->out.data + c->out.from, (int)(c->out.fit - c->out.from));
	if (n > 0) {
		sent(&c->out, (size_t)n);
		c->to_write = 0;
		return true;
	}
	c->to_write = awaited(c->tls, n);
	/* Its last words may still be there to be read. */
	if (!c->to_write)
		sent(&c->out, c->out.fit - c->out.from);
	return !c->to_write;
}

/* -- towards the client ------------------------------------------------------------------------ */

static void judge(struct carriage *c)
{
	struct flow *in = &c->in;

	while (c->stage == LOGIN && in->fit < in->len) {
		size_t rest = in->len - in->fit, message = 0;
		enum sasl_verdict verdict =
			sasl_judge(in->data + in->fit, &rest, &c->login, &message, c->e);

		in->len = in->fit + rest;
		if (verdict == SASL_MORE)
			return;
		c->answered = true;
		c->answer_by = clock_mono_ms() + LINK_PATIENCE_MS;
		if (verdict == SASL_PASS) {
			in->fit += message;
			continue;
		}
		c->stage = verdict == SASL_OVER ? SESSION : REFUSED;
		c->answer_by = 0;
		if (c->stage == REFUSED)
			hurry(c);
	}
	if (c->stage == SESSION)
		in->fit = in->len;
}

/* Without a login there is a reason, and somebody waits for it. */
static void end_of_server(struct carriage *c, int rc)
{
	bool failed = SSL_get_error(c->tls, rc) == SSL_ERROR_SSL &&
	              ERR_GET_REASON(ERR_peek_last_error()) != SSL_R_UNEXPECTED_EOF_WHILE_READING;

	c->server_ended = true;
	hurry(c);
	if (c->stage != LOGIN || c->cancels)
		return;
	c->stage = REFUSED;
	(void)err_set(c->e, EPROTO, "it closes the connection before the login is over%s%s",
	              failed ? ": " : "", failed ? reach_reason() : "");
}

static bool take_from_server(struct carriage *c)
{
	struct flow *in = &c->in;
	int n;

	if (c->server_ended || is_waiting(in))
		return false;
	ERR_clear_error();
	n = SSL_read(c->tls, in->data + in->len, (int)(sizeof(in->data) - in->len));
	if (n > 0) {
		in->len += (size_t)n;
		c->to_read = 0;
		judge(c);
		return true;
	}
	c->to_read = awaited(c->tls, n);
	if (!c->to_read)
		end_of_server(c, n);
	return !c->to_read;
}

static bool give_to_client(struct carriage *c)
{
	struct flow *in = &c->in;
	ssize_t n = (ssize_t)(in->fit - in->from);

	if (!is_waiting(in))
		return false;
	if (!c->client_gone)
		n = send(c->client, in->data + in->from, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n < 0) {
		c->client_gone = true;
		hurry(c);
	} else {
		sent(in, (size_t)n);
	}
	return true;
}

/* -- both -------------------------------------------------------------------------------------- */

static bool is_over(const struct carriage *c)
{
	return (c->client_ended && !is_waiting(&c->out)) ||
	       (c->server_ended && !is_waiting(&c->in)) ||
	       (c->stage == REFUSED && !is_waiting(&c->in));
}

/* False when the time is over. */
static bool wait_for_either(struct carriage *c)
{
	struct pollfd p[] = { { .fd = c->client_gone ? -1 : c->client }, { .fd = -1 } };
	int n;

	if (!c->client_ended && !c->server_ended && !is_waiting(&c->out))
		p[0].events |= POLLIN;
	if (is_waiting(&c->in))
		p[0].events |= POLLOUT;
	if (!c->server_ended && !is_waiting(&c->in))
		p[1].events |= c->to_read;
	if (is_waiting(&c->out))
		p[1].events |= c->to_write;
	/* What nothing is wanted of would say again and again that it has closed. */
	if (p[1].events)
		p[1].fd = c->server;
	n = poll(p, 2, clock_left_ms(deadline(c)));
	if (n > 0 && (p[0].revents & (POLLHUP | POLLERR))) {
		c->client_gone = true;
		hurry(c);
	}
	return n > 0 || (n < 0 && errno == EINTR);
}

static void move(struct carriage *c)
{
	bool moved;

	do {
		moved = take_from_client(c);
		moved |= give_to_server(c);
		if (c->stage != REFUSED)
			moved |= take_from_server(c);
		moved |= give_to_client(c);
	} while (moved && !is_over(c));
}

static int end(struct carriage *c)
{
	if (c->stage == REFUSED)
		return -1;
	if (c->stage == LOGIN && !c->last_by)
		return err_set(c->e, ETIMEDOUT, "it is silent for %d s during the login",
		               LINK_PATIENCE_MS / 1000);
	(void)SSL_shutdown(c->tls);
	ERR_clear_error();
	return 0;
}

int carry(SSL *server, int client, struct err *e)
{
	struct carriage c = {
		.tls = server,
		.server = SSL_get_fd(server),
		.client = client,
		.e = e,
		.to_read = POLLIN,
		.answer_by = clock_mono_ms() + LINK_PATIENCE_MS,
	};

	do
		move(&c);
	while (!is_over(&c) && wait_for_either(&c));
	return end(&c);
}
