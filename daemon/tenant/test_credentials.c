/* Tokens declared by file and by hash, side by side; and what checking one costs. */
#include "common/test.h"

#include "common/fd.h"
#include "common/test_files.h"
#include "daemon/tenant/registry.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define TOKEN_A "cloister_5dJt2n0hV-Zq8xWm4uKpR7aEyTsL1cBgOiNf3vXkQ6w"
#define TOKEN_B "cloister_b9mJq0Lr2XzYtW7hD4sUeK1vNfQ8cGpA6oTiR3xHkSw"

static char world[64], hash_a[65], hash_b[65];

static const char *in_world(const char *name)
{
	static char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", world, name);
	return path;
}

static void put(const char *name, const char *text)
{
	auto_close int fd = open(in_world(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct err e = ERR_INIT;

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text), &e), 0);
}

static void hash_of(const char *token, char ret[65])
{
	unsigned char digest[32];

	crypto_hash_sha256(digest, (const unsigned char *)token, strlen(token));
	sodium_bin2hex(ret, 65, digest, sizeof(digest));
}

static int begin_world(void **state)
{
	(void)state;
	(void)snprintf(world, sizeof(world), "/tmp/credentials-XXXXXX");
	if (!mkdtemp(world))
		return -1;
	assert_int_equal(mkdir(in_world("ws"), 0700), 0);
	put("token", TOKEN_A "\n");
	hash_of(TOKEN_A, hash_a);
	hash_of(TOKEN_B, hash_b);
	return 0;
}

static int end_world(void **state)
{
	(void)state;
	return remove_tree_at(world);
}

/* One tenant with these credentials; "@" is the world, "$A" and "$B" are the hashes. */
static void write_registry(const char *credentials)
{
	auto_buf struct buf text = BUF_INIT(65536);

	buf_addf(&text,
	         "{\"version\":1,\"tenants\":[{\"id\":\"01980000-0000-7000-8000-00000000ac3e\","
	         "\"name\":\"acme\",\"workspaceRoot\":\"%s/ws\",\"credentials\":[",
	         world);
	for (const char *p = credentials; *p; p++) {
		if (*p == '@')
			buf_adds(&text, world);
		else if (*p == '$')
			buf_adds(&text, *++p == 'A' ? hash_a : hash_b);
		else
			buf_addc(&text, *p);
	}
	buf_adds(&text, "]}]}");
	put("tenants.json", text.data);
}

static void gather(void *ctx, const char *line)
{
	buf_adds(ctx, line);
	buf_addc(ctx, '\n');
}

/* NULL when there is a fault, which must be that one. */
static struct registry *load(const char *credentials, const char *fault)
{
	auto_buf struct buf faults = BUF_INIT(65536);
	struct registry *r = NULL;
	struct err e = ERR_INIT;

	write_registry(credentials);
	(void)!registry_load(in_world("tenants.json"), NULL, &r, gather, &faults, &e);
	assert_string_equal(faults.data ? faults.data : "", fault);
	return r;
}

#define ID_1   "\"id\":\"01980000-0000-7000-8000-000000000001\""
#define ID_2   "\"id\":\"01980000-0000-7000-8000-000000000002\""
#define FILE_1 "{" ID_1 ",\"tokenFile\":\"@/token\"}"
#define HASH_2 "{" ID_2 ",\"tokenHash\":\"$B\"}"
#define AT     "tenants[0].credentials[0]"

static bool admits(const struct registry *r, const char *token, const char *wanted)
{
	const char *id = "";

	return registry_authenticate(r, token, strlen(token), &id) && strcmp(id, wanted) == 0;
}

static void file_and_hash_side_by_side(void **state)
{
	struct registry *r = load(FILE_1 "," HASH_2, "");

	(void)state;
	assert_true(admits(r, TOKEN_A, "01980000-0000-7000-8000-000000000001"));
	assert_true(admits(r, TOKEN_B, "01980000-0000-7000-8000-000000000002"));
	/* The hash is not the token. */
	assert_false(admits(r, hash_b, ""));
	registry_free(&r);
}

static void a_file_with_a_hash(void **state)
{
	char text[80];
	struct registry *r;

	(void)state;
	(void)snprintf(text, sizeof(text), "sha256:%s\n", hash_b);
	put("token", text);
	r = load(FILE_1, "");
	assert_true(admits(r, TOKEN_B, "01980000-0000-7000-8000-000000000001"));
	assert_false(admits(r, text, ""));
	registry_free(&r);
}

static void one_of_the_two(void **state)
{
	(void)state;
	assert_null(load("{" ID_1 "}", AT ": tokenFile or tokenHash is missing\n"));
	assert_null(load("{" ID_1 ",\"tokenFile\":\"@/token\",\"tokenHash\":\"$A\"}",
	                 AT ": tokenFile and tokenHash exclude one another\n"));
	assert_null(load("{" ID_1 ",\"tokenHash\":7}",
	                 AT ".tokenHash: expected a string, found an integer\n"));
	assert_null(load("{" ID_1 ",\"token\":\"" TOKEN_A "\"}",
	                 AT ".token: unknown field\n" AT ": tokenFile or tokenHash is missing\n"));
}

static void a_token_is_declared_once(void **state)
{
	(void)state;
	assert_null(load(FILE_1 ",{" ID_2 ",\"tokenHash\":\"$A\"}",
	                 "tenants[0].credentials[1].tokenHash: the same token as " AT
	                 ".tokenFile\n"));
	assert_null(load("{" ID_1 ",\"tokenHash\":\"$B\"}," HASH_2,
	                 "tenants[0].credentials[1].tokenHash: the same token as " AT
	                 ".tokenHash\n"));
}

static void what_is_refused_is_named(void **state)
{
	auto_buf struct buf fault = BUF_INIT(1024);

	(void)state;
	assert_null(load("{" ID_1 ",\"tokenHash\":\"$Ax\"}",
	                 AT ".tokenHash: must be the SHA-256 of a token: 64 hex digits in lower "
	                    "case, as \"cloisterd token new\" prints them\n"));
	put("token", "changeme-changeme-changeme-changeme");
	buf_addf(&fault,
	         AT ".tokenFile: %s/token: the token looks like a placeholder: it has "
	            "\"changeme\" in it\n",
	         world);
	assert_null(load(FILE_1, fault.data));
}

/* -- cost -------------------------------------------------------------------------------- */

#define TRIES 20000

static double microseconds(const struct registry *r, const char *const *tokens, size_t n)
{
	struct timespec from, to;
	size_t let_in = 0;

	(void)clock_gettime(CLOCK_MONOTONIC, &from);
	for (size_t i = 0; i < TRIES; i++)
		let_in += registry_authenticate(r, tokens[i % n], strlen(tokens[i % n]), NULL) !=
		          NULL;
	(void)clock_gettime(CLOCK_MONOTONIC, &to);
	assert_true(let_in == 0 || let_in == TRIES);
	return ((double)(to.tv_sec - from.tv_sec) * 1e6 +
	        (double)(to.tv_nsec - from.tv_nsec) / 1e3) /
	       TRIES;
}

/*
 * Nothing of a token is looked at but its SHA-256, so there is nothing by which an id that
 * is declared could be told from one that is not.  The figures are for the reader; what is
 * judged is only that checking is too cheap to load a machine with.
 */
static void a_check_costs_microseconds(void **state)
{
	static const char *const known[] = {
		"01980000-0000-7000-8000-000000000001.5dJt2n0hV-Zq8xWm4uKpR7aEyTsL1cB",
		"01980000-0000-7000-8000-000000000002.5dJt2n0hV-Zq8xWm4uKpR7aEyTsL1cB",
	}, *const unknown[] = {
		"01980000-0000-7000-8000-000000000008.5dJt2n0hV-Zq8xWm4uKpR7aEyTsL1cB",
		"01980000-0000-7000-8000-000000000009.5dJt2n0hV-Zq8xWm4uKpR7aEyTsL1cB",
	}, *const right[] = { TOKEN_B };
	struct registry *r = load(FILE_1 "," HASH_2, "");
	double of_known = microseconds(r, known, 2), of_unknown = microseconds(r, unknown, 2),
	       of_right = microseconds(r, right, 1);

	(void)state;
	print_message("a check: %.2f us with a known id in it, %.2f us with an unknown one, "
	              "%.2f us when it is right\n",
	              of_known, of_unknown, of_right);
	assert_true(of_known < 1000 && of_unknown < 1000 && of_right < 1000);
	registry_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(file_and_hash_side_by_side, begin_world, end_world),
		cmocka_unit_test_setup_teardown(a_file_with_a_hash, begin_world, end_world),
		cmocka_unit_test_setup_teardown(one_of_the_two, begin_world, end_world),
		cmocka_unit_test_setup_teardown(a_token_is_declared_once, begin_world, end_world),
		cmocka_unit_test_setup_teardown(what_is_refused_is_named, begin_world, end_world),
		cmocka_unit_test_setup_teardown(a_check_costs_microseconds, begin_world, end_world),
	};

	if (sodium_init() < 0)
		return 1;
	return RUN_TESTS(tests);
}
