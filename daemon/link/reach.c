#include "daemon/link/reach.h"

#include "common/clock.h"
#include "common/fd.h"
#include "daemon/link/names.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STALL_MS 60000 /* bytes that nobody acknowledges for so long end a connection */

/* One attempt. */
struct attempt {
	const struct reach *at;
	int client;
	uint64_t deadline;
};

static void free_addresses(struct addrinfo **found)
{
	if (*found)
		freeaddrinfo(*found);
}

const char *reach_reason(void)
{
	const char *text = ERR_reason_error_string(ERR_peek_last_error());

	ERR_clear_error();
	return text ? text : "the connection ended";
}

/* -- what is prepared before the link gives its powers up ----------------------------------------
 */

static int add_authorities(SSL_CTX *tls, const char *pem, size_t len, struct err *e)
{
	BIO *in = BIO_new_mem_buf(pem, (int)len);
	X509 *one;
	int n = 0;

	while (in && (one = PEM_read_bio_X509_AUX(in, NULL, NULL, NULL))) {
		/*
		 * Reads its extensions, which is done once: now, where no other thread looks on.
		 * What is wrong with them is for the verification to say.
		 */
		(void)X509_check_purpose(one, -1, 0);
		n += X509_STORE_add_cert(SSL_CTX_get_cert_store(tls), one);
		X509_free(one);
	}
	BIO_free(in);
	/* The end of the text is an error, too. */
	if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		return err_set(e, EINVAL, "a certificate is malformed: %s", reach_reason());
	ERR_clear_error();
	return n ? 0 : err_set(e, EINVAL, "no certificate in it");
}

int reach_init(struct reach *r, const struct link_conf *conf, const char *authorities, size_t len,
               struct err *e)
{
	unsigned char address[sizeof(struct in6_addr)];

	*r = (struct reach){ .port = conf->port };
	(void)snprintf(r->host, sizeof(r->host), "%s", conf->host);
	r->is_address = inet_pton(AF_INET, r->host, address) == 1 ||
	                inet_pton(AF_INET6, r->host, address) == 1;
	r->tls = SSL_CTX_new(TLS_client_method());
	if (!r->tls || SSL_CTX_set_min_proto_version(r->tls, TLS1_2_VERSION) != 1)
		return err_set(e, EIO, "OpenSSL does not start: %s", reach_reason());
	SSL_CTX_set_verify(r->tls, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_options(r->tls, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_session_cache_mode(r->tls, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(r->tls, SSL_MODE_ENABLE_PARTIAL_WRITE |
	                                 SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
	                                 SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_read_ahead(r->tls, 1);
	return add_authorities(r->tls, authorities, len, e);
}

/* -- TCP --------------------------------------------------------------------------------------- */

/* A dead peer is noticed by unanswered bytes or unanswered probes. */
static void set_socket(int fd)
{
	const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, 30 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 10 },
		{ IPPROTO_TCP, TCP_KEEPCNT, 3 },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, STALL_MS },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
	};

	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
		                 sizeof(options[i].value));
}

static int connect_failed(const struct reach *r, int code, struct err *e)
{
	if (code == ECANCELED)
		return -1;
	if (code == ETIMEDOUT)
		return err_set(e, code,
		               "no answer from %s, port %u, within %d s; is it up, and does a "
		               "firewall let us through?",
		               r->host, r->port, LINK_PATIENCE_MS / 1000);
	if (code == ECONNREFUSED)
		return err_set(e, code,
		               "nobody listens at %s, port %u; start PostgreSQL there, or correct "
		               "the URL of the database",
		               r->host, r->port);
	errno = code;
	return err_errno(e, "connect to %s, port %u", r->host, r->port);
}

static int connect_to(const struct attempt *a, const struct addrinfo *to, uint64_t deadline,
                      struct err *e)
{
	auto_close int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t len = sizeof(int);
	int code = 0;

	if (fd < 0)
		return err_errno(e, "a socket for %s", a->at->host);
	set_socket(fd);
	if (connect(fd, to->ai_addr, to->ai_addrlen) < 0) {
		if (errno != EINPROGRESS)
			return connect_failed(a->at, errno, e);
		if (names_wait(fd, POLLOUT, a->client, deadline, e) < 0)
			return connect_failed(a->at, e->code, e);
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &len) < 0)
			code = errno;
	}
	return code ? connect_failed(a->at, code, e) : fd_take(&fd);
}

/* Each address gets its share of the time that is left. */
static int connect_to_any(const struct attempt *a, const struct addrinfo *found, struct err *e)
{
	unsigned int left = 0;

	for (const struct addrinfo *to = found; to; to = to->ai_next)
		left++;
	for (const struct addrinfo *to = found; to; to = to->ai_next, left--) {
		uint64_t now = clock_mono_ms();
		uint64_t share = a->deadline > now ? (a->deadline - now) / left : 0;
		int fd = connect_to(a, to, now + share, e);

		if (fd >= 0 || e->code == ECANCELED)
			return fd;
	}
	return -1;
}

static int connect_by_name(const struct attempt *a, struct err *e)
{
	struct addrinfo *found __attribute__((cleanup(free_addresses))) = NULL;

	if (names_look_up(a->at->host, a->at->port, a->client, a->deadline, &found, e) == 0)
		return connect_to_any(a, found, e);
	if (e->code == ETIMEDOUT)
		return err_set(e, ETIMEDOUT,
		               "no answer about %s from name service within %d s; see "
		               "/etc/resolv.conf",
		               a->at->host, LINK_PATIENCE_MS / 1000);
	return e->code == ECANCELED ? -1 : err_wrap(e, "find the database server %s", a->at->host);
}

/* -- TLS --------------------------------------------------------------------------------------- */

/* One byte, and no more: what came behind it would be taken for a part of TLS. */
static int ask_for_tls(const struct attempt *a, int fd, struct err *e)
{
	static const unsigned char request[] = { 0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f };
	char answer = 0;
	ssize_t n;

	if (send(fd, request, sizeof(request), MSG_NOSIGNAL) != sizeof(request))
		return err_errno(e, "ask %s, port %u, for TLS", a->at->host, a->at->port);
	do {
		if (names_wait(fd, POLLIN, a->client, a->deadline, e) < 0)
			return connect_failed(a->at, e->code, e);
		n = recv(fd, &answer, 1, 0);
	} while (n < 0 && (errno == EAGAIN || errno == EINTR));
	if (n == 1 && answer == 'S')
		return 0;
	if (n == 1 && answer == 'N')
		return err_set(e, EPROTO,
		               "PostgreSQL at %s, port %u, has no TLS; set ssl = on in its "
		               "postgresql.conf",
		               a->at->host, a->at->port);
	return err_set(e, EPROTO, "%s, port %u, %s when it was asked for TLS", a->at->host,
	               a->at->port,
	               n == 1 ? "gave no answer of PostgreSQL's" : "closed the connection");
}

static const char *certificate_remedy(long verdict)
{
	switch (verdict) {
	case X509_V_ERR_HOSTNAME_MISMATCH:
	case X509_V_ERR_IP_ADDRESS_MISMATCH:
		return "give it a certificate with this name, or use the one it has in the URL";
	case X509_V_ERR_CERT_HAS_EXPIRED:
	case X509_V_ERR_CERT_NOT_YET_VALID:
		return "renew it, or correct the clock";
	default:
		return "name its authority by sslrootcert= in the URL";
	}
}

static int handshake_failed(const struct reach *r, const SSL *tls, struct err *e)
{
	long verdict = SSL_get_verify_result(tls);

	if (verdict == X509_V_OK)
		return err_set(e, EPROTO, "TLS with %s, port %u: %s", r->host, r->port,
		               reach_reason());
	ERR_clear_error();
	return err_set(e, EACCES, "certificate of %s, port %u: %s; %s", r->host, r->port,
	               X509_verify_cert_error_string(verdict), certificate_remedy(verdict));
}

static int handshake(const struct attempt *a, SSL *tls, struct err *e)
{
	for (;;) {
		int rc, code;

		ERR_clear_error();
		rc = SSL_connect(tls);
		if (rc == 1)
			return 0;
		code = SSL_get_error(tls, rc);
		if (code != SSL_ERROR_WANT_READ && code != SSL_ERROR_WANT_WRITE)
			return handshake_failed(a->at, tls, e);
		if (names_wait(SSL_get_fd(tls), code == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT,
		               a->client, a->deadline, e) < 0)
			return connect_failed(a->at, e->code, e);
	}
}

/* Whom it must be. */
static bool expect(SSL *tls, const struct reach *r)
{
	char name[sizeof(r->host)]; /* OpenSSL's macro takes no const */

	SSL_set_hostflags(tls, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
	                               X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	if (r->is_address)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), r->host) == 1;
	memcpy(name, r->host, sizeof(name));
	return SSL_set1_host(tls, name) == 1 && SSL_set_tlsext_host_name(tls, name) == 1;
}

int reach_open(const struct reach *r, int client, SSL **ret, struct err *e)
{
	const struct attempt a = { r, client, clock_mono_ms() + LINK_PATIENCE_MS };
	auto_close int fd = connect_by_name(&a, e);
	SSL *tls;

	if (fd < 0 || ask_for_tls(&a, fd, e) < 0)
		return -1;
	tls = SSL_new(r->tls);
	if (!tls || !expect(tls, r) || SSL_set_fd(tls, fd) != 1) {
		SSL_free(tls);
		return err_set(e, ENOMEM, "TLS with %s: %s", r->host, reach_reason());
	}
	(void)fd_take(&fd);
	if (handshake(&a, tls, e) < 0) {
		reach_close(&tls);
		return -1;
	}
	*ret = tls;
	return 0;
}

void reach_close(SSL **tls)
{
	int fd = *tls ? SSL_get_fd(*tls) : -1;

	SSL_free(*tls);
	*tls = NULL;
	fd_close(&fd);
}
