/*
 * What is in the line becomes where the server sends its password and every row, so nothing of
 * it is guessed: libpq takes the URL apart, and each keyword has to be one that is known here.
 * libpq's own complaints quote what they complain of, and so are not passed on.
 */
#include "daemon/store/url.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libpq-fe.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USER     "cloister_owner" /* as sql/bootstrap makes them */
#define DATABASE "cloister"
#define PORT     5432

#define FORM                                                                            \
	"postgresql://" USER ":PASSWORD@HOST[:PORT]/" DATABASE " or postgresql://" USER \
	":PASSWORD@/" DATABASE "?host="                                                 \
	"/DIRECTORY/OF/SOCKET"

/* What libpq found, by keyword; NULL = not said. */
struct parts {
	const char *user, *database, *password, *host, *port, *sslmode, *sslrootcert;
};

/* -- taking it apart ------------------------------------------------------------------------ */

static const char **part_of(struct parts *p, const char *keyword)
{
	const struct {
		const char *keyword;
		const char **at;
	} known[] = {
		{ "user", &p->user },
		{ "dbname", &p->database },
		{ "password", &p->password },
		{ "host", &p->host },
		{ "port", &p->port },
		{ "sslmode", &p->sslmode },
		{ "sslrootcert", &p->sslrootcert },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(known[i].keyword, keyword) == 0)
			return known[i].at;
	return NULL;
}

static int collect(const PQconninfoOption *options, struct parts *ret, struct err *e)
{
	for (const PQconninfoOption *o = options; o->keyword; o++) {
		const char **at = part_of(ret, o->keyword);

		if (!o->val || !*o->val)
			continue;
		if (!at && strcmp(o->keyword, "hostaddr") == 0)
			return err_set(e, EINVAL,
			               "hostaddr is not taken; name the host, whose address is "
			               "looked up and whose certificate is checked");
		if (!at)
			return err_set(e, EINVAL,
			               "the parameter %.64s is not taken; host, port, sslmode and "
			               "sslrootcert are",
			               o->keyword);
		*at = o->val;
	}
	return 0;
}

/* libpq frees what it parsed as it is. */
static void free_options(PQconninfoOption *options)
{
	for (PQconninfoOption *o = options; o && o->keyword; o++)
		if (o->val)
			sodium_memzero(o->val, strlen(o->val));
	PQconninfoFree(options);
}

/* -- judging -------------------------------------------------------------------------------- */

static int check_who(const struct parts *p, struct err *e)
{
	if (!p->user || strcmp(p->user, USER) != 0)
		return err_set(e, EINVAL,
		               "the user must be " USER ", which cloisterd database-script makes");
	if (!p->database || strcmp(p->database, DATABASE) != 0)
		return err_set(e, EINVAL,
		               "the database must be " DATABASE
		               ", which cloisterd database-script makes");
	if (!p->password)
		return err_set(e, EINVAL,
		               "no password; write it behind " USER
		               ": with what is not a letter or "
		               "digit as %%XX, and set the same in psql with \\password " USER);
	if (strlen(p->password) > URL_PASSWORD_MAX)
		return err_set(e, EINVAL, "the password is longer than %d bytes", URL_PASSWORD_MAX);
	return 0;
}

static int check_host(const struct parts *p, struct err *e)
{
	if (strchr(p->host, ',') || (p->port && strchr(p->port, ',')))
		return err_set(e, EINVAL, "more than one host; name the one that is written to");
	return 0;
}

static int read_port(const char *text, unsigned int *ret, struct err *e)
{
	size_t digits = text ? strspn(text, "0123456789") : 0;
	unsigned long port = PORT;

	if (text)
		port = digits && digits <= 5 && !text[digits] ? strtoul(text, NULL, 10) : 0;
	if (port < 1 || port > 65535)
		return err_set(e, EINVAL, "the port is not a number from 1 to 65535");
	*ret = (unsigned int)port;
	return 0;
}

static int take_socket(const struct parts *p, struct database_url *ret, struct err *e)
{
	if (p->sslmode || p->sslrootcert)
		return err_set(e, EINVAL, "%s is for TCP; leave it out with a Unix socket",
		               p->sslmode ? "sslmode" : "sslrootcert");
	if (strlen(p->host) > URL_SOCKET_MAX)
		return err_set(e, EINVAL,
		               "the directory of the socket is longer than %d bytes, too long for "
		               "the path of a Unix socket in it; use a shorter one",
		               URL_SOCKET_MAX);
	ret->local = true;
	return 0;
}

static bool is_host(const char *host)
{
	struct in6_addr v6;

	if (inet_pton(AF_INET6, host, &v6) == 1)
		return true;
	return host[0] != '-' && host[0] != '.' &&
	       strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") ==
	               strlen(host);
}

static int take_tcp(const struct parts *p, struct database_url *ret, struct err *e)
{
	if (strlen(p->host) > URL_HOST_MAX)
		return err_set(e, EINVAL, "the host is longer than %d bytes", URL_HOST_MAX);
	if (!is_host(p->host))
		return err_set(e, EINVAL,
		               "the host is not a name, an address or the directory of a socket");
	if (p->sslmode && strcmp(p->sslmode, "verify-full") != 0)
		return err_set(e, EINVAL,
		               "sslmode must be verify-full, or be left out, which means the same: "
		               "anything less trusts whoever answers");
	if (p->sslrootcert && p->sslrootcert[0] != '/')
		return err_set(e, EINVAL,
		               "sslrootcert must be the absolute path of a PEM file, or be left "
		               "out for the authorities of this machine");
	if (p->sslrootcert && strlen(p->sslrootcert) > URL_PATH_MAX)
		return err_set(e, EINVAL, "sslrootcert is longer than %d bytes", URL_PATH_MAX);
	(void)snprintf(ret->ca_file, sizeof(ret->ca_file), "%s",
	               p->sslrootcert ? p->sslrootcert : "");
	return 0;
}

static int judge(const struct parts *p, struct database_url *ret, struct err *e)
{
	if (check_who(p, e) < 0)
		return -1;
	if (!p->host)
		return err_set(e, EINVAL, "no host; write " FORM);
	if (check_host(p, e) < 0 || read_port(p->port, &ret->port, e) < 0)
		return -1;
	if ((p->host[0] == '/' ? take_socket : take_tcp)(p, ret, e) < 0)
		return -1;
	(void)snprintf(ret->host, sizeof(ret->host), "%s", p->host);
	(void)snprintf(ret->password, sizeof(ret->password), "%s", p->password);
	return 0;
}

/* -- the line -------------------------------------------------------------------------------- */

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static int check_line(const char *line, size_t len, struct err *e)
{
	static const char *const schemes[] = { "postgresql://", "postgres://" };

	if (len == 0)
		return err_set(e, EINVAL, "is empty; write " FORM);
	for (size_t i = 0; i < len; i++) {
		if (line[i] == '\n' || line[i] == '\r')
			return err_set(e, EINVAL, "has more than one line");
		if ((unsigned char)line[i] <= 0x20 || line[i] == 0x7f)
			return err_set(
				e, EINVAL,
				"has a blank or a control character in it; write it as %%XX");
	}
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
		if (strncmp(line, schemes[i], strlen(schemes[i])) == 0)
			return 0;
	return err_set(e, EINVAL, "is not a URL of PostgreSQL; write " FORM);
}

static int parse_line(const char *line, struct database_url *ret, struct err *e)
{
	char *complaint = NULL;
	PQconninfoOption *options = PQconninfoParse(line, &complaint);
	struct parts parts = { NULL };
	int rc;

	if (complaint)
		sodium_memzero(complaint, strlen(complaint));
	PQfreemem(complaint);
	if (!options)
		return err_set(e, EINVAL,
		               "is not understood by libpq; write " FORM
		               ", with what is not a letter or digit in the password as %%XX, and "
		               "no parameter that libpq does not know");
	rc = collect(options, &parts, e) < 0 ? -1 : judge(&parts, ret, e);
	free_options(options);
	return rc;
}

int url_parse(const char *text, size_t len, struct database_url *ret, struct err *e)
{
	char line[URL_MAX + 1];
	int rc;

	*ret = (struct database_url){ .port = 0 };
	while (len && is_space(text[len - 1]))
		len--;
	while (len && is_space(*text)) {
		text++;
		len--;
	}
	if (len > URL_MAX)
		return err_set(e, EINVAL, "is longer than %d bytes", URL_MAX);
	memcpy(line, text, len);
	line[len] = '\0';
	rc = check_line(line, len, e) < 0 ? -1 : parse_line(line, ret, e);
	sodium_memzero(line, sizeof(line));
	if (rc < 0)
		url_wipe(ret);
	return rc;
}

void url_wipe(struct database_url *url)
{
	sodium_memzero(url->password, sizeof(url->password));
}
