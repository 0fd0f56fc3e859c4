#include "common/test.h"

#include "daemon/store/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECRET "Geheim-4711"
#define LOCAL  "postgresql://cloister_owner:" SECRET "@/cloister?host=/run/postgresql"
#define REMOTE "postgresql://cloister_owner:" SECRET "@db.example.org/cloister"

static struct database_url url;

static void accepts(const char *text)
{
	struct err e = ERR_INIT;

	if (url_parse(text, strlen(text), &url, &e) < 0)
		fail_msg("%s: %s", text, e.text);
}

static void refuses(const char *text, const char *part)
{
	struct err e = ERR_INIT;

	if (url_parse(text, strlen(text), &url, &e) == 0)
		fail_msg("%s was accepted", text);
	if (!strstr(e.text, part))
		fail_msg("%s: %s, without \"%s\"", text, e.text, part);
	/* What was found before the fault shall not stay, and the error shall not tell it. */
	assert_null(strstr(e.text, SECRET));
	assert_int_equal(strlen(url.password), 0);
}

static void a_socket(void **state)
{
	(void)state;
	accepts(LOCAL);
	assert_true(url.local);
	assert_string_equal(url.host, "/run/postgresql");
	assert_int_equal(url.port, 5432);
	assert_string_equal(url.password, SECRET);
	assert_string_equal(url.ca_file, "");
	accepts(" \t" LOCAL "&port=5433\r\n");
	assert_int_equal(url.port, 5433);
	accepts("postgres://cloister_owner:x@%2Frun%2Fpostgresql/cloister");
	assert_true(url.local);
	assert_string_equal(url.host, "/run/postgresql");
}

static void tcp(void **state)
{
	(void)state;
	accepts(REMOTE);
	assert_false(url.local);
	assert_string_equal(url.host, "db.example.org");
	assert_int_equal(url.port, 5432);
	accepts("postgresql://cloister_owner:a%40b%2F%25c@db:1/"
	        "cloister?sslmode=verify-full&sslrootcert=/etc/ca.pem");
	assert_string_equal(url.host, "db");
	assert_int_equal(url.port, 1);
	assert_string_equal(url.password, "a@b/%c");
	assert_string_equal(url.ca_file, "/etc/ca.pem");
	accepts("postgresql://cloister_owner:x@[2001:db8::1]:65535/cloister");
	assert_string_equal(url.host, "2001:db8::1");
	assert_int_equal(url.port, 65535);
	accepts("postgresql://cloister_owner:x@192.0.2.1/cloister");
	assert_string_equal(url.host, "192.0.2.1");
}

static void what_is_no_url(void **state)
{
	(void)state;
	refuses("", "is empty");
	refuses(" \n", "is empty");
	refuses("host=/run/postgresql user=cloister_owner password=" SECRET, "blank");
	refuses("host=/run/postgresql", "is not a URL");
	refuses("mysql://cloister_owner:" SECRET "@db/cloister", "is not a URL");
	refuses(LOCAL "\n" LOCAL, "more than one line");
	refuses(LOCAL "\r" LOCAL, "more than one line");
	refuses("postgresql://cloister_owner:" SECRET " x@db/cloister", "blank");
	refuses("postgresql://cloister_owner:" SECRET "\x7f@db/cloister", "control character");
	refuses("postgresql://cloister_owner:" SECRET "%zz@db/cloister", "not understood");
	refuses("postgresql://cloister_owner:" SECRET "%00@db/cloister", "not understood");
	refuses("postgresql://cloister_owner:" SECRET "@[::1/cloister", "not understood");
	refuses(REMOTE "?nonsense=1", "not understood");
}

/* What lies behind its end is not the line's. */
static void the_length_counts(void **state)
{
	static const char text[] = LOCAL "&port=1";
	char *head = malloc(strlen("postgres"));
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(url_parse(text, strlen(LOCAL), &url, &e), 0);
	assert_int_equal(url.port, 5432);
	assert_non_null(head);
	memcpy(head, text, strlen("postgres"));
	assert_int_equal(url_parse(head, strlen("postgres"), &url, &e), -1);
	assert_non_null(strstr(e.text, "is not a URL"));
	assert_int_equal(url_parse(LOCAL, 0, &url, &e), -1);
	assert_int_equal(url_parse(LOCAL "\0x", sizeof(LOCAL "\0x") - 1, &url, &e), -1);
	assert_non_null(strstr(e.text, "control character"));
	free(head);
}

static void who_and_what(void **state)
{
	(void)state;
	refuses("postgresql://postgres:" SECRET "@db/cloister", "user must be cloister_owner");
	refuses("postgresql://db/cloister", "user must be");
	refuses("postgresql://cloister_owner:" SECRET "@db/postgres", "database must be cloister");
	refuses("postgresql://cloister_owner:" SECRET "@db", "database must be cloister");
	refuses("postgresql://cloister_owner:" SECRET "@db/cloister2", "database must be");
	refuses("postgresql://cloister_owner@db/cloister", "no password");
	refuses("postgresql://cloister_owner:@db/cloister", "no password");
	refuses("postgresql://cloister_owner:" SECRET "@/cloister", "no host");
	refuses("postgresql://cloister_owner:" SECRET "@a,b/cloister", "more than one host");
	refuses("postgresql://cloister_owner:" SECRET "@a:1,b:2/cloister", "more than one host");
	refuses(LOCAL ",db", "more than one host");
	/* A second word for the same is the one that counts for libpq, so it is judged. */
	refuses(REMOTE "?user=postgres", "user must be");
	refuses(REMOTE "?dbname=postgres", "database must be");
}

static void parameters(void **state)
{
	static const char *const others[] = {
		"service=x",
		"options=-crole%3Dx",
		"passfile=/x",
		"sslcert=/x",
		"sslkey=/x",
		"target_session_attrs=any",
		"application_name=x",
		"connect_timeout=1",
		"channel_binding=disable",
		"gssencmode=prefer",
		"replication=database",
		"sslcrl=/x",
	};
	char text[256];

	(void)state;
	refuses(REMOTE "?hostaddr=192.0.2.1", "hostaddr is not taken");
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		(void)snprintf(text, sizeof(text), REMOTE "?%s", others[i]);
		refuses(text, "not");
		(void)snprintf(text, sizeof(text), LOCAL "&%s", others[i]);
		refuses(text, "not");
	}
	for (size_t i = 0; i < 5; i++) {
		static const char *const modes[] = { "disable", "allow", "prefer", "require",
			                             "verify-ca" };

		(void)snprintf(text, sizeof(text), REMOTE "?sslmode=%s", modes[i]);
		refuses(text, "sslmode must be verify-full");
	}
	refuses(REMOTE "?ssl=true", "sslmode must be verify-full");
	refuses(REMOTE "?requiressl=1", "sslmode must be verify-full");
	refuses(REMOTE "?sslrootcert=ca.pem", "absolute path");
	refuses(REMOTE "?sslrootcert=system", "absolute path");
	refuses(LOCAL "&sslmode=verify-full", "sslmode is for TCP");
	refuses(LOCAL "&sslrootcert=/etc/ca.pem", "sslrootcert is for TCP");
}

static void hosts(void **state)
{
	(void)state;
	refuses("postgresql://cloister_owner:" SECRET "@%40abstract/cloister", "host is not");
	refuses("postgresql://cloister_owner:" SECRET "@-db/cloister", "host is not");
	refuses("postgresql://cloister_owner:" SECRET "@.db/cloister", "host is not");
	refuses("postgresql://cloister_owner:" SECRET "@d%0ab/cloister", "host is not");
	refuses("postgresql://cloister_owner:" SECRET "@run%2Fpg/cloister", "host is not");
	refuses("postgresql://cloister_owner:" SECRET "@[fe80::1%25eth0]/cloister", "host is not");
}

static void ports(void **state)
{
	(void)state;
	refuses(LOCAL "&port=0", "port is not");
	refuses(LOCAL "&port=65536", "port is not");
	refuses(LOCAL "&port=065535", "port is not");
	refuses(LOCAL "&port=-1", "port is not");
	refuses(LOCAL "&port=x", "port is not");
	refuses("postgresql://cloister_owner:" SECRET "@db:99999/cloister", "port is not");
	accepts(LOCAL "&port=65535");
}

/* A URL that ends in n of the letter c behind head. */
static const char *long_url(const char *head, size_t n, char c, const char *tail)
{
	static char text[2 * URL_MAX];
	static char fill[URL_MAX + 1];

	memset(fill, c, n);
	fill[n] = '\0';
	(void)snprintf(text, sizeof(text), "%s%s%s", head, fill, tail);
	return text;
}

static void bounds(void **state)
{
	const size_t fixed = strlen("postgresql://cloister_owner:x@db/cloister?sslrootcert=/");

	(void)state;
	accepts(long_url("postgresql://cloister_owner:", URL_PASSWORD_MAX, 'p', "@db/cloister"));
	assert_int_equal(strlen(url.password), URL_PASSWORD_MAX);
	refuses(long_url("postgresql://cloister_owner:", URL_PASSWORD_MAX + 1, 'p', "@db/cloister"),
	        "password is longer than 512");
	accepts(long_url("postgresql://cloister_owner:x@", URL_HOST_MAX, 'h', "/cloister"));
	assert_int_equal(strlen(url.host), URL_HOST_MAX);
	refuses(long_url("postgresql://cloister_owner:x@", URL_HOST_MAX + 1, 'h', "/cloister"),
	        "host is longer than 253");
	accepts(long_url("postgresql://cloister_owner:x@/cloister?host=/", URL_SOCKET_MAX - 1, 's',
	                 ""));
	refuses(long_url("postgresql://cloister_owner:x@/cloister?host=/", URL_SOCKET_MAX, 's', ""),
	        "socket is longer than 90");
	accepts(long_url("postgresql://cloister_owner:x@db/cloister?sslrootcert=/",
	                 URL_PATH_MAX - 1, 'c', ""));
	refuses(long_url("postgresql://cloister_owner:x@db/cloister?sslrootcert=/", URL_PATH_MAX,
	                 'c', ""),
	        "sslrootcert is longer than 1024");
	refuses(long_url("postgresql://cloister_owner:x@db/cloister?sslrootcert=/", URL_MAX - fixed,
	                 'c', ""),
	        "sslrootcert is longer");
	refuses(long_url("postgresql://cloister_owner:x@db/cloister?sslrootcert=/",
	                 URL_MAX - fixed + 1, 'c', ""),
	        "is longer than 4096");
}

static void wiping(void **state)
{
	const char *const zeros = (char[sizeof(url.password)]){ 0 };

	(void)state;
	accepts(REMOTE);
	url_wipe(&url);
	assert_memory_equal(url.password, zeros, sizeof(url.password));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_socket),       cmocka_unit_test(tcp),
		cmocka_unit_test(what_is_no_url), cmocka_unit_test(the_length_counts),
		cmocka_unit_test(who_and_what),   cmocka_unit_test(parameters),
		cmocka_unit_test(hosts),          cmocka_unit_test(ports),
		cmocka_unit_test(bounds),         cmocka_unit_test(wiping),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
