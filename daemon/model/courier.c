#include "daemon/model/courier.h"

#include "common/authorities.h"
#include "common/fd.h"
#include "common/fdmsg.h"
#include "daemon/confine/confine.h"
#include "daemon/launcher/keeper.h"
#include "daemon/model/courier_request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define PASS_MS 1000 /* longest sleep of the loop */

struct post {
	struct courier courier;
	int sock;
	struct courier_request *requests[COURIER_REQUESTS_MAX];
	size_t count;
	bool over; /* the server is gone */
};

/* -- the loop --------------------------------------------------------------------------------- */

/*
 * One descriptor comes with each message; -1 when there is none of use.  Where there is no room
 * for it, it is closed, which ends that request and nothing else.
 */
static int receive_descriptor(struct post *p)
{
	int fds[FDMSG_MAX];
	size_t count;
	char word;
	ssize_t n = fdmsg_receive(p->sock, &word, 1, fds, &count, MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EMSGSIZE && errno != EMFILE))
		p->over = true;
	for (size_t i = 0; i < count && count > 1; i++)
		fd_close(&fds[i]);
	return fds[0];
}

/* Too many requests are closed at once. */
static void take_request(struct post *p)
{
	int fd = receive_descriptor(p);

	if (fd < 0)
		return;
	if (p->count == COURIER_REQUESTS_MAX) {
		fd_close(&fd);
		return;
	}
	p->requests[p->count] = courier_request_new(&p->courier, fd);
	if (p->requests[p->count])
		p->count++;
}

static void take_results(const struct post *p)
{
	const CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(p->courier.multi, &left))) {
		struct courier_request *r = NULL;

		if (m->msg != CURLMSG_DONE)
			continue;
		(void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &r);
		courier_request_done(r, m->data.result);
	}
}

static void forget_ended(struct post *p)
{
	for (size_t i = p->count; i-- > 0;) {
		if (p->requests[i]->state != COURIER_OVER)
			continue;
		courier_request_free(&p->requests[i]);
		p->requests[i] = p->requests[--p->count];
	}
}

static void serve_sockets(struct post *p, const struct curl_waitfd *fds, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (fds[i].revents & ~CURL_WAIT_POLLOUT)
			courier_request_read(p->requests[i]);
		courier_request_write(p->requests[i]);
	}
}

static void pass(struct post *p)
{
	struct curl_waitfd fds[COURIER_REQUESTS_MAX + 1];
	size_t n = p->count;
	int running;

	for (size_t i = 0; i < n; i++)
		fds[i] = (struct curl_waitfd){
			.fd = p->requests[i]->fd,
			.events = (short)(CURL_WAIT_POLLIN |
			                  (p->requests[i]->out.len ? CURL_WAIT_POLLOUT : 0)),
		};
	fds[n] = (struct curl_waitfd){ .fd = p->sock, .events = CURL_WAIT_POLLIN };
	(void)curl_multi_poll(p->courier.multi, fds, (unsigned int)n + 1, PASS_MS, NULL);
	serve_sockets(p, fds, n);
	forget_ended(p);
	if (fds[n].revents)
		take_request(p);
	(void)curl_multi_perform(p->courier.multi, &running);
	take_results(p);
	for (size_t i = 0; i < p->count; i++)
		courier_request_write(p->requests[i]);
	forget_ended(p);
}

/* -- the start --------------------------------------------------------------------------------- */

static bool needs_authorities(const struct courier_conf *conf)
{
	for (size_t i = 0; conf->models && i < conf->models->n; i++)
		if (conf->models->v[i].at.secure)
			return true;
	for (size_t i = 0; i < conf->mcp_count; i++)
		if (conf->mcp[i].secure)
			return true;
	return false;
}

static int read_authorities(struct courier *c, struct err *e)
{
	const char *path = authorities_path();
	auto_close int fd = -1;

	if (!needs_authorities(c->conf))
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_errno(e, "%s: authorities for https; install ca-certificates", path);
	if (fd_read_all(fd, AUTHORITIES_MAX, &c->authorities, &c->authorities_len, e) < 0)
		return err_wrap(e, "%s", path);
	return 0;
}

/* Where proxies listen, as the environment says; curl reads the same names. */
static size_t proxy_ports(uint16_t *ports)
{
	static const char *const names[] = { "http_proxy", "https_proxy", "HTTPS_PROXY",
		                             "all_proxy", "ALL_PROXY" };
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *proxy = getenv(names[i]);
		const char *colon = proxy ? strrchr(proxy, ':') : NULL;
		long port = colon ? strtol(colon + 1, NULL, 10) : 0;

		if (proxy && *proxy)
			ports[n++] = (uint16_t)(port > 0 && port <= 65535 ? port : 1080);
	}
	return n;
}

static int confine(const struct courier_conf *conf, struct err *e)
{
	uint16_t ports[MODELS_MAX + COURIER_MCP_MAX + 8];
	size_t n = proxy_ports(ports);

	for (size_t i = 0; conf->models && i < conf->models->n; i++)
		ports[n++] = conf->models->v[i].at.port;
	for (size_t i = 0; i < conf->mcp_count; i++)
		ports[n++] = conf->mcp[i].port;
	ports[n++] = 53;
	return confine_courier(conf->mode, ports, n, e);
}

static int read_keys(struct courier *c, struct err *e)
{
	const struct courier_conf *conf = c->conf;

	for (size_t i = 0; conf->models && i < conf->models->n; i++)
		if (endpoint_key(&conf->models->v[i].at, c->keys[i], e) < 0)
			return -1;
	for (size_t i = 0; i < conf->mcp_count; i++)
		if (endpoint_key(&conf->mcp[i], c->mcp_keys[i], e) < 0)
			return -1;
	return 0;
}

static int prepare(struct post *p, struct err *e)
{
	if (read_keys(&p->courier, e) < 0 || read_authorities(&p->courier, e) < 0)
		return -1;
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return err_set(e, EIO, "libcurl does not start");
	p->courier.multi = curl_multi_init();
	if (!p->courier.multi)
		return err_set(e, ENOMEM, "no memory for libcurl");
	return confine(p->courier.conf, e);
}

static int begin(void *ctx, int sock, struct err *e)
{
	struct post *p = ctx;

	p->sock = sock;
	return prepare(p, e);
}

static void work(void *ctx)
{
	struct post *p = ctx;

	while (!p->over)
		pass(p);
}

int courier_start(const struct courier_conf *conf, int *ret_sock, struct err *e)
{
	auto_free struct post *p = calloc(1, sizeof(*p));
	const struct kept kept = { .name = "the process that speaks to providers",
		                   .who = "courier",
		                   .fd = -1,
		                   .begin = begin,
		                   .work = work,
		                   .ctx = p };

	if (!p)
		return err_set(e, ENOMEM, "no memory for the process that speaks to providers");
	p->courier.conf = conf;
	return keeper_start(&kept, ret_sock, e);
}
