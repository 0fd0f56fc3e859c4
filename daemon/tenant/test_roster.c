/* Compiled registries, the roster, and the registry of local mode. */
#include "common/test.h"

#include "common/fd.h"
#include "daemon/tenant/compiled.h"
#include "daemon/tenant/registry_draft.h"
#include "daemon/tenant/roster.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct uuid id_of(unsigned int kind, size_t number)
{
	struct uuid id;
	char text[80];

	(void)snprintf(text, sizeof(text), "01980000-0000-7000-800%u-%012zx", kind, number);
	assert_true(uuid_parse(text, &id));
	return id;
}

static void give(struct model_list *list, size_t n, const char *name)
{
	list->given = true;
	list->ids = draft_alloc(n, sizeof(*list->ids));
	for (; list->count < n; list->count++)
		(void)snprintf(list->ids[list->count], sizeof(list->ids[0]), "%s%zu", name,
		               list->count);
}

static void give_models(struct tenant *t)
{
	give(&t->models, 2, "m/");
	give(&t->mcp, 1, "s-");
	t->approvals = TENANT_ASK;
}

static void expect_same_ids(const struct model_list *x, const struct model_list *y)
{
	assert_int_equal(x->count, y->count);
	for (size_t k = 0; k < x->count; k++)
		assert_string_equal(x->ids[k], y->ids[k]);
}

/* A registry of n tenants with so many credentials each, as if it had been read. */
static struct registry *make(size_t n, size_t credentials, unsigned int first)
{
	struct registry *r = draft_alloc(1, sizeof(*r));

	r->tenants = draft_alloc(n, sizeof(*r->tenants));
	for (r->count = 0; r->count < n; r->count++) {
		struct tenant *t = &r->tenants[r->count];

		t->id = id_of(0, first + r->count);
		(void)snprintf(t->name, sizeof(t->name), "t%zu", first + r->count);
		t->index = r->count;
		if (r->count % 2 == 0)
			give_models(t);
		t->credentials = draft_alloc(credentials, sizeof(*t->credentials));
		for (t->credential_count = 0; t->credential_count < credentials;
		     t->credential_count++) {
			struct credential *c = &t->credentials[t->credential_count];
			char token[64];

			c->id = id_of(1, (first + r->count) * 256 + t->credential_count);
			(void)snprintf(token, sizeof(token), "token-of-%08zu-number-%010zu",
			               first + r->count, t->credential_count);
			assert_true(token_digest(token, strlen(token), c->digest));
		}
	}
	registry_index(r);
	return r;
}

static const char *token_of(size_t tenant, size_t credential)
{
	static char token[64];

	(void)snprintf(token, sizeof(token), "token-of-%08zu-number-%010zu", tenant, credential);
	return token;
}

/* -- compiled ------------------------------------------------------------------------------- */

static void expect_same(const struct registry *a, const struct registry *b)
{
	assert_int_equal(registry_count(a), registry_count(b));
	for (size_t i = 0; i < registry_count(a); i++) {
		const struct tenant *x = registry_at(a, i), *y = registry_at(b, i);

		assert_string_equal(x->id.text, y->id.text);
		assert_string_equal(x->name, y->name);
		assert_int_equal(x->credential_count, y->credential_count);
		for (size_t k = 0; k < x->credential_count; k++) {
			assert_string_equal(x->credentials[k].id.text, y->credentials[k].id.text);
			assert_memory_equal(x->credentials[k].digest, y->credentials[k].digest,
			                    TOKEN_DIGEST);
		}
		assert_int_equal(x->models.given, y->models.given);
		expect_same_ids(&x->models, &y->models);
		expect_same_ids(&x->mcp, &y->mcp);
		assert_int_equal(x->approvals, y->approvals);
		assert_null(y->workspace);
		assert_ptr_equal(registry_find(b, &x->id), y);
	}
}

static void compiles_and_takes(void **state)
{
	static const struct {
		size_t tenants, credentials;
	} sizes[] = {
		{ 1, 1 },
		{ 3, 16 },
		{ REGISTRY_MAX_TENANTS, REGISTRY_MAX_CREDENTIALS },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct registry *r = make(sizes[i].tenants, sizes[i].credentials, 1);
		struct registry *taken = NULL;
		struct err e = ERR_INIT;
		int fd = registry_compile(r, &e);

		assert_true(fd >= 0);
		assert_int_equal(registry_take(fd, &taken, &e), 0);
		expect_same(r, taken);
		assert_ptr_equal(
			registry_authenticate(taken, token_of(1, 0), strlen(token_of(1, 0)), NULL),
			registry_at(taken, 0));
		/* Nobody can change it under the reader. */
		assert_int_equal(pwrite(fd, "x", 1, 0), -1);
		assert_int_equal(ftruncate(fd, 0), -1);
		assert_true(mmap(NULL, 1, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
		close(fd);
		registry_free(&taken);
		registry_free(&r);
	}
}

static size_t read_image(const struct registry *r, char *image, size_t size)
{
	struct err e = ERR_INIT;
	int fd = registry_compile(r, &e);
	ssize_t n = pread(fd, image, size, 0);

	assert_true(n > 0 && (size_t)n < size);
	close(fd);
	return (size_t)n;
}

static void expect_refused(const char *image, size_t len, const char *reason)
{
	int fd = memfd_create("image", MFD_CLOEXEC);
	struct registry *taken = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(write(fd, image, len), (ssize_t)len);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	if (registry_take(fd, &taken, &e) == 0)
		fail_msg("taken, but: %s", reason);
	assert_null(taken);
	if (!strstr(e.text, reason))
		fail_msg("%s, not %s", e.text, reason);
	close(fd);
}

/*
 * Where things lie in the image of two tenants with two credentials each: a head with three
 * counts, the tenants (id, name, three counts), the credentials (id, digest), the two models
 * and the MCP server of the first tenant.
 */
#define TENANT      ((size_t)36)
#define TENANT_ROW  ((size_t)120)
#define NAME        (TENANT + UUID_TEXT_LEN + 1)
#define SHARE       (TENANT + TENANT_ROW - 16)
#define MODELS      (SHARE + 4)
#define SERVERS     (SHARE + 8)
#define APPROVALS   (SHARE + 12)
#define CREDENTIAL  (TENANT + 2 * TENANT_ROW)
#define CREDENTIALS ((size_t)69) /* bytes of one */
#define DIGEST      (CREDENTIAL + UUID_TEXT_LEN + 1)
#define MODEL       (CREDENTIAL + 4 * CREDENTIALS)
#define SERVER      (MODEL + 2UL * (TENANT_MODEL_MAX + 1))

static void takes_nothing_else(void **state)
{
	static const struct {
		size_t at, len;
		const char *bytes;
		const char *reason;
	} spoilt[] = {
		{ 0, 1, "C", "not one" },
		{ 19, 1, "x", "not one" },
		{ 24, 4, "\0\0\0", "tenants is out of bounds" },
		{ 24, 4, "\x01\x10\0", "tenants is out of bounds" },
		{ 24, 4, "\x01\0\0", "not what its counts say" },
		{ 28, 4, "\x05\0\0", "not what its counts say" },
		{ 28, 4, "\xff\xff\xff\xff", "not what its counts say" },
		{ 32, 4, "\x04\0\0", "not what its counts say" },
		{ 32, 4, "\xff\xff\xff\xff", "not what its counts say" },
		{ TENANT, 1, "X", "id of a tenant" },
		{ TENANT, 36, "00000000-0000-0000-0000-000000000000", "id of a tenant" },
		{ TENANT, 36, REGISTRY_LOCAL_ID, "id of a tenant" },
		{ TENANT + 36, 1, "x", "id of a tenant" },
		{ NAME, 1, "", "name of a tenant" },
		{ NAME, 1, "T", "name of a tenant" },
		{ SHARE, 4, "\0\0\0", "credentials is out of bounds" },
		{ SHARE, 4, "\x11\0\0", "credentials is out of bounds" },
		{ SHARE, 4, "\x01\0\0", "more credentials or ids than" },
		{ SHARE, 4, "\x04\0\0", "credentials is out of bounds" },
		{ MODELS, 4, "\x04\0\0", "MCP servers is out of bounds" },
		{ MODELS, 4, "\x21\0\0", "MCP servers is out of bounds" },
		{ SERVERS, 4, "\x02\0\0", "MCP servers is out of bounds" },
		{ SERVERS, 4, "\x21\0\0", "MCP servers is out of bounds" },
		{ SERVERS, 4, "\0\0\0", "more credentials or ids than" },
		{ MODELS, 4, "\x01\0\0", "more credentials or ids than" },
		{ APPROVALS, 4, "\x03\0\0", "who is asked" },
		{ APPROVALS, 4, "\0\0\0\x01", "who is asked" },
		{ CREDENTIAL, 1, "-", "id of a credential" },
		{ MODEL, 1, "", "id of a model" },
		{ MODEL, 1, " ", "id of a model" },
		{ SERVER, 1, "", "id of a model" },
		{ SERVER, 1, "/", "id of a model" },
	};
	struct registry *r = make(2, 2, 1);
	char good[4096], bad[4096];
	size_t len = read_image(r, good, sizeof(good));

	(void)state;
	assert_int_equal(len, SERVER + sizeof(r->tenants[0].mcp.ids[0]));
	for (size_t i = 0; i < ARRAY_LEN(spoilt); i++) {
		memcpy(bad, good, len);
		memcpy(bad + spoilt[i].at, spoilt[i].bytes, spoilt[i].len);
		expect_refused(bad, len, spoilt[i].reason);
	}
	memcpy(bad, good, len);
	memset(bad + NAME, 'a', TENANT_NAME_MAX + 1);
	expect_refused(bad, len, "name of a tenant");
	memcpy(bad, good, len);
	memset(bad + MODEL, 'a', TENANT_MODEL_MAX + 1);
	expect_refused(bad, len, "id of a model");
	registry_free(&r);
}

static void a_list_of_models_is_all_there_is(void **state)
{
	struct tenant t = { .index = 0 };

	(void)state;
	assert_true(registry_model_allowed(&t, "any"));
	t.models.given = true;
	assert_false(registry_model_allowed(&t, "any"));
	give_models(&t);
	assert_true(registry_model_allowed(&t, "m/1"));
	assert_false(registry_model_allowed(&t, "m/"));
	assert_false(registry_model_allowed(&t, "m/11"));
	free(t.models.ids);
	free(t.mcp.ids);
}

/* One that has no list has none, but in local mode all. */
static void a_list_of_mcp_servers_is_all_there_is(void **state)
{
	struct tenant t = { .index = 0 };

	(void)state;
	assert_false(registry_mcp_allowed(&t, "s-0"));
	give(&t.mcp, 1, "s-");
	assert_true(registry_mcp_allowed(&t, "s-0"));
	assert_false(registry_mcp_allowed(&t, "s-"));
	free(t.mcp.ids);
	t.mcp = (struct model_list){ .count = 0 };
	assert_true(uuid_parse(REGISTRY_LOCAL_ID, &t.id));
	assert_true(registry_mcp_allowed(&t, "any"));
}

static void takes_nothing_twice(void **state)
{
	static const struct {
		size_t from, to, len;
	} copies[] = {
		{ TENANT, TENANT + TENANT_ROW, UUID_TEXT_LEN },
		{ DIGEST, DIGEST + CREDENTIALS, TOKEN_DIGEST },
		{ DIGEST, DIGEST + 3 * CREDENTIALS, TOKEN_DIGEST },
	};
	struct registry *r = make(2, 2, 1);
	char good[4096], bad[4096];
	size_t len = read_image(r, good, sizeof(good));

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(copies); i++) {
		memcpy(bad, good, len);
		memcpy(bad + copies[i].to, good + copies[i].from, copies[i].len);
		expect_refused(bad, len, "twice");
	}
	registry_free(&r);
}

static void takes_nothing_cut_or_longer(void **state)
{
	struct registry *r = make(2, 2, 1);
	char image[4096] = "";
	size_t len = read_image(r, image, sizeof(image));

	(void)state;
	for (size_t cut = 0; cut < len; cut++)
		expect_refused(image, cut, cut < TENANT ? "too short" : "not what its counts say");
	expect_refused(image, len + 1, "not what its counts say");
	registry_free(&r);
}

static void takes_no_flood(void **state)
{
	int fd = memfd_create("flood", MFD_CLOEXEC);
	struct registry *taken = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(ftruncate(fd, 1 << 30), 0);
	assert_int_equal(registry_take(fd, &taken, &e), -1);
	assert_int_equal(e.code, EFBIG);
	close(fd);
}

/* -- roster ---------------------------------------------------------------------------------- */

static const struct caller *admit(struct roster *r, size_t tenant, size_t credential)
{
	return roster_admit(r, token_of(tenant, credential), strlen(token_of(tenant, credential)));
}

static void keeps_what_a_caller_was_let_in_under(void **state)
{
	struct registry *first = make(2, 2, 1);
	const struct caller *old, *fresh;
	struct roster *r = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(roster_new(first, NULL, &r, &e), 0);
	old = admit(r, 1, 0);
	assert_non_null(old);
	assert_null(admit(r, 3, 0));
	assert_null(roster_admit(r, NULL, 0));
	assert_true(roster_still(r, old));
	roster_replace(r, make(2, 2, 2)); /* tenants 2 and 3 */
	assert_string_equal(old->tenant->name, "t1");
	assert_false(roster_still(r, old));
	assert_null(admit(r, 1, 0));
	fresh = admit(r, 3, 1);
	assert_string_equal(fresh->tenant->name, "t3");
	assert_true(roster_still(r, fresh));
	roster_replace(r, make(3, 1, 1)); /* without second tokens */
	assert_true(roster_still(r, old));
	assert_false(roster_still(r, fresh));
	assert_true(roster_declares(r, &fresh->tenant->id));
	roster_leave(r, old);
	roster_leave(r, fresh);
	roster_free(&r);
	registry_free(&first);
}

/* The same token with another tenant is another token. */
static void a_token_that_moved_counts_no_more(void **state)
{
	struct registry *first = make(1, 1, 1), *next = make(1, 1, 2);
	const struct caller *c;
	struct roster *r = NULL;
	struct err e = ERR_INIT;

	(void)state;
	memcpy(next->tenants[0].credentials[0].digest, first->tenants[0].credentials[0].digest,
	       TOKEN_DIGEST);
	free(next->by_id);
	free(next->slots);
	registry_index(next);
	assert_int_equal(roster_new(first, NULL, &r, &e), 0);
	c = admit(r, 1, 0);
	roster_replace(r, next);
	assert_false(roster_still(r, c));
	roster_leave(r, c);
	roster_free(&r);
	registry_free(&first);
}

static void anyone_needs_no_token(void **state)
{
	struct registry *first = make(1, 1, 1);
	const struct caller *c;
	struct roster *r = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(roster_new(first, registry_at(first, 0), &r, &e), 0);
	c = roster_admit(r, NULL, 0);
	assert_ptr_equal(c->tenant, registry_at(first, 0));
	assert_true(roster_still(r, c));
	roster_leave(r, c);
	roster_free(&r);
	registry_free(&first);
}

static struct roster *shared;
static char shared_token[64]; /* token_of() is for one thread */
static atomic_bool over;
static atomic_int wrong; /* cmocka's assertions are for the thread of the test */

static void *come_and_go(void *arg)
{
	atomic_uint *seen = arg;

	while (!atomic_load(&over)) {
		const struct caller *c = roster_admit(shared, shared_token, strlen(shared_token));

		if (!c || strcmp(c->tenant->name, "t5") != 0 || !roster_still(shared, c))
			atomic_fetch_add(&wrong, 1);
		if (c)
			roster_leave(shared, c);
		atomic_fetch_add(seen, 1);
	}
	return NULL;
}

static void survives_replacements_under_load(void **state)
{
	struct registry *first = make(10, 2, 1);
	atomic_uint seen[3] = { 0 };
	pthread_t threads[3];
	struct err e = ERR_INIT;

	(void)state;
	atomic_store(&over, false);
	atomic_store(&wrong, 0);
	(void)snprintf(shared_token, sizeof(shared_token), "%s", token_of(5, 0));
	assert_int_equal(roster_new(first, NULL, &shared, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &seen[i]), 0);
	/* Until each has seen many of them, however busy the machine is. */
	for (unsigned int i = 0; i < 300 || atomic_load(&seen[0]) < 100 ||
	                         atomic_load(&seen[1]) < 100 || atomic_load(&seen[2]) < 100;
	     i++)
		roster_replace(shared, make(10, 2, 1 + i % 5));
	atomic_store(&over, true);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&wrong), 0);
	roster_free(&shared);
	registry_free(&first);
}

/* -- local mode -------------------------------------------------------------------------------- */

static char world[64];

static int begin_world(void **state)
{
	static const char *const names[] = { "one", "two", "sub", "sub/one", "state" };
	char path[128];

	(void)state;
	(void)snprintf(world, sizeof(world), "/tmp/roster-XXXXXX");
	if (!mkdtemp(world))
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", world, names[i]);
		if (mkdir(path, 0700) < 0)
			return -1;
	}
	return 0;
}

static int end_world(void **state)
{
	static const char *const names[] = { "one", "two", "sub/one", "sub", "state", "" };
	char path[128];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", world, names[i]);
		if (rmdir(path) < 0)
			return -1;
	}
	return 0;
}

static int local(const char *a, const char *b, struct registry **ret, struct err *e)
{
	char first[128], second[128], state[128];
	char *roots[] = { first, second };

	(void)snprintf(first, sizeof(first), "%s/%s", world, a);
	(void)snprintf(second, sizeof(second), "%s/%s", world, b ? b : "");
	(void)snprintf(state, sizeof(state), "%s/state", world);
	return registry_local(roots, b ? 2 : 1, state, NULL, ret, e);
}

static void expect_guest(const struct tenant *t, const char *below, const char *guest)
{
	auto_buf struct buf out = BUF_INIT(4096);
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/%s", world, below);
	assert_int_equal(registry_guest_path(t, path, &out), guest != NULL);
	if (guest)
		assert_string_equal(out.data, guest);
}

static void one_root_is_the_workspace(void **state)
{
	struct registry *r = NULL;
	struct err e = ERR_INIT;
	const struct tenant *t;

	(void)state;
	assert_int_equal(local("one", NULL, &r, &e), 0);
	t = registry_at(r, 0);
	assert_string_equal(t->id.text, REGISTRY_LOCAL_ID);
	assert_true(uuid_valid(t->id.text, UUID_TEXT_LEN));
	assert_int_equal(t->part_count, 0);
	assert_int_equal(t->credential_count, 0);
	expect_guest(t, "one", "/workspace");
	expect_guest(t, "one/a/b", "/workspace/a/b");
	expect_guest(t, "one-more", NULL);
	expect_guest(t, "on", NULL);
	expect_guest(t, "two", NULL);
	registry_free(&r);
}

static void several_roots_are_parts(void **state)
{
	struct registry *r = NULL;
	struct err e = ERR_INIT;
	const struct tenant *t;

	(void)state;
	assert_int_equal(local("one", "two", &r, &e), 0);
	t = registry_at(r, 0);
	assert_int_equal(t->part_count, 2);
	expect_guest(t, "one", "/workspace/one");
	expect_guest(t, "two/x", "/workspace/two/x");
	expect_guest(t, "sub", NULL);
	registry_free(&r);
}

static void roots_that_clash_are_refused(void **state)
{
	static const struct {
		const char *a, *b, *reason;
	} clashes[] = {
		{ "one", "one", "lie in one another" },
		{ "sub", "sub/one", "lie in one another" },
		{ "sub/one", "sub", "lie in one another" },
		{ "one", "sub/one", "would both be /workspace/one" },
		{ "state", NULL, "state directory lie in one another" },
		{ "", NULL, "state directory lie in one another" },
		{ "missing", NULL, "--workspace-root" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(clashes); i++) {
		struct registry *r = NULL;
		struct err e = ERR_INIT;

		assert_int_equal(local(clashes[i].a, clashes[i].b, &r, &e), -1);
		assert_null(r);
		if (!strstr(e.text, clashes[i].reason))
			fail_msg("%s, not %s", e.text, clashes[i].reason);
	}
}

static void others_have_no_host_paths(void **state)
{
	struct registry *r = make(1, 1, 1);
	auto_buf struct buf out = BUF_INIT(4096);

	(void)state;
	r->tenants[0].workspace = draft_copy("/srv/work");
	assert_false(registry_guest_path(registry_at(r, 0), "/srv/work", &out));
	registry_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(compiles_and_takes),
		cmocka_unit_test(takes_nothing_else),
		cmocka_unit_test(a_list_of_models_is_all_there_is),
		cmocka_unit_test(a_list_of_mcp_servers_is_all_there_is),
		cmocka_unit_test(takes_nothing_twice),
		cmocka_unit_test(takes_nothing_cut_or_longer),
		cmocka_unit_test(takes_no_flood),
		cmocka_unit_test(keeps_what_a_caller_was_let_in_under),
		cmocka_unit_test(a_token_that_moved_counts_no_more),
		cmocka_unit_test(anyone_needs_no_token),
		cmocka_unit_test(survives_replacements_under_load),
		cmocka_unit_test_setup_teardown(one_root_is_the_workspace, begin_world, end_world),
		cmocka_unit_test_setup_teardown(several_roots_are_parts, begin_world, end_world),
		cmocka_unit_test_setup_teardown(roots_that_clash_are_refused, begin_world,
		                                end_world),
		cmocka_unit_test(others_have_no_host_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
