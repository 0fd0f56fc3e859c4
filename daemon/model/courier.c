#include "daemon/model/courier.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/fdmsg.h"
#include "common/log.h"
#include "common/sanitizer.h"
#include "daemon/confine/confine.h"
#include "daemon/launcher/child.h"
#include "daemon/model/courier_request.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define AUTHORITIES     "/etc/ssl/certs/ca-certificates.crt"
#define AUTHORITIES_MAX ((size_t)16 << 20)
#define PASS_MS         1000 /* longest sleep of the loop */
#define RESTART_MIN_MS  100
#define RESTART_MAX_MS  10000
#define STEADY_MS       60000 /* one that lived so long begins anew at once */

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

/* SSL_CERT_FILE names another file, as for other programs. */
static int read_authorities(struct courier *c, struct err *e)
{
	const char *path = getenv("SSL_CERT_FILE");
	auto_close int fd = -1;

	if (!needs_authorities(c->conf))
		return 0;
	path = path && *path ? path : AUTHORITIES;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_errno(e, "%s: authorities for https; install ca-certificates", path);
	return fd_read_all(fd, AUTHORITIES_MAX, &c->authorities, &c->authorities_len, e);
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

static int prepare(struct post *p, const struct courier_conf *conf, struct err *e)
{
	p->courier.conf = conf;
	if (read_keys(&p->courier, e) < 0 || read_authorities(&p->courier, e) < 0)
		return -1;
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return err_set(e, EIO, "libcurl does not start");
	p->courier.multi = curl_multi_init();
	if (!p->courier.multi)
		return err_set(e, ENOMEM, "no memory for libcurl");
	return confine(conf, e);
}

/* What the server is told of its start: nothing wrong is an empty text. */
static void tell(int ready, const char *text)
{
	if (ready >= 0 && write(ready, text, strlen(text) + 1) < 0)
		_exit(1);
}

static void run(int sock, int ready, const struct courier_conf *conf)
{
	struct post *p = calloc(1, sizeof(*p));
	struct err e = ERR_INIT;

	if (!p)
		_exit(1);
	p->sock = sock;
	if (prepare(p, conf, &e) < 0) {
		log_error("the process that speaks to providers does not start: %s", e.text);
		tell(ready, e.text);
		_exit(1);
	}
	tell(ready, "");
	fd_close(&ready);
	while (!p->over)
		pass(p);
	sanitizer_count_leaks();
	/* Threads that look names up may go on for a while; nobody waits for them. */
	_exit(0);
}

/* -- the keeper -------------------------------------------------------------------------------- */

static void be_courier(int sock, int ready, const struct courier_conf *conf, pid_t keeper)
{
	child_begin(keeper);
	(void)signal(SIGPIPE, SIG_IGN);
	run(sock, ready, conf);
}

/* Until it ends; how it did. */
static int run_courier(int sock, int *ready, const struct courier_conf *conf)
{
	pid_t keeper = getpid(), pid = fork();
	int status = 1 << 8; /* as of exit(1) */

	if (pid == 0)
		be_courier(sock, *ready, conf, keeper);
	fd_close(ready); /* the server hears of a first one that ends without a word */
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			break;
	return status;
}

/*
 * The server's socket outlives each courier: what waits in it is the next one's.  One that
 * ends in order has seen the server's end closed.
 */
static void keep(int sock, int ready, const struct courier_conf *conf)
{
	unsigned int ms = RESTART_MIN_MS;

	for (;;) {
		uint64_t began = clock_mono_ms();
		int status = run_courier(sock, &ready, conf);
		char how[CHILD_END_SIZE];

		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			_exit(0);
		child_describe(status, how);
		ms = clock_mono_ms() - began > STEADY_MS ? RESTART_MIN_MS : ms * 2;
		ms = ms < RESTART_MAX_MS ? ms : RESTART_MAX_MS;
		log_error("the process that speaks to providers ended: %s; another one begins in "
		          "%u ms",
		          how, ms);
		(void)poll(NULL, 0, (int)ms);
	}
}

static void be_keeper(int sock, int ready, const struct courier_conf *conf, pid_t server)
{
	const int kept[] = { sock < ready ? sock : ready, sock < ready ? ready : sock };
	struct err e = ERR_INIT;

	child_begin(server);
	fd_close_from(STDERR_FILENO + 1, kept, 2);
	if (confine_process(&e) < 0) {
		tell(ready, e.text);
		_exit(1);
	}
	keep(sock, ready, conf);
}

/* 0 once the first courier is ready. */
static int await_ready(int ready, struct err *e)
{
	char said[sizeof(e->text)] = "";
	ssize_t n;

	do
		n = read(ready, said, sizeof(said) - 1);
	while (n < 0 && errno == EINTR);
	if (n == 1 && !said[0])
		return 0;
	return err_set(e, EPROTO, "the courier does not start: %s",
	               n > 0 ? said : "it ended without a word");
}

int courier_start(const struct courier_conf *conf, int *ret_sock, struct err *e)
{
	const pid_t server = getpid();
	int ends[2], ready[2], rc = -1;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return err_errno(e, "make a socket for the courier");
	if (pipe2(ready, O_CLOEXEC) < 0) {
		(void)err_errno(e, "make a pipe for the courier");
		fd_close(&ends[0]);
		fd_close(&ends[1]);
		return -1;
	}
	pid = fork();
	if (pid == 0)
		be_keeper(ends[1], ready[1], conf, server);
	fd_close(&ends[1]);
	fd_close(&ready[1]);
	if (pid < 0)
		(void)err_errno(e, "fork the courier");
	else
		rc = await_ready(ready[0], e);
	fd_close(&ready[0]);
	if (rc < 0)
		fd_close(&ends[0]);
	else
		*ret_sock = ends[0];
	return rc;
}
