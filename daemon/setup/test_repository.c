#include "common/test.h"

#include "common/attr.h"

#include "daemon/setup/repository.h"

#include <string.h>

static void takes_https(void **state)
{
	static const char *const good[] = {
		"https://github.com/a/b",          "https://example.org:8443/a/b.git",
		"https://[2001:db8::1]/r",         "https://h/a%20b/~c/d-e_f.git",
		"https://git.example.org/@org/it",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		if (repository_url_fault(good[i], false))
			fail_msg("%s: %s", good[i], repository_url_fault(good[i], false));
	assert_null(repository_url_fault("http://h/r", true));
	assert_non_null(repository_url_fault("http://h/r", false));
}

static void refuses_other_places(void **state)
{
	static const char *const bad[] = {
		"",
		"-",
		"--upload-pack=touch /tmp/x",
		"https:",
		"https://",
		"https:///r",
		"https://h",
		"https://h/",
		"https://-h/r",
		"https://.h/r",
		"https://h:/r",
		"https://h:123456/r",
		"https://h:1x/r",
		"https://[::1/r",
		"https://[]/r",
		"https://[::1]x/r",
		"https://user@h/r",
		"https://user:word@h/r",
		"https://h@evil/r",
		"https://h/r?a=b",
		"https://h/r#a",
		"https://h/a b",
		"https://h/a\\b",
		"https://h/a\nb",
		"https://h/\"a",
		"https://h/\x7f",
		"https://h/\xc3\xa4",
		"HTTPS://h/r",
		"file:///etc",
		"/etc",
		"./r",
		"../r",
		"git://h/r",
		"ssh://h/r",
		"git@h:r",
		"ext::sh -c id",
		"ext::https://h/r",
		"fd::3",
		"ftp://h/r",
		" https://h/r",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (!repository_url_fault(bad[i], true))
			fail_msg("taken: %s", bad[i]);
}

static void bounds_urls_and_refs(void **state)
{
	char text[2100] = "https://h/";

	(void)state;
	memset(text + 10, 'a', 2048 - 10);
	assert_null(repository_url_fault(text, false));
	text[2048] = 'a';
	assert_non_null(repository_url_fault(text, false));
	memset(text, 'a', 255);
	text[255] = '\0';
	assert_null(repository_ref_fault(text));
	text[255] = 'a';
	text[256] = '\0';
	assert_non_null(repository_ref_fault(text));
}

static void takes_refs_as_git_does(void **state)
{
	static const char *const good[] = {
		"main",        "a/b/c",           "v1.0",
		"feature/x-1", "refs/heads/main", "a@b",
		"a.lockx",     "\xc3\xa4",        "0123456789abcdef0123456789abcdef01234567",
	};
	static const char *const bad[] = {
		"",      "-",      "-b",       "--upload-pack=x",
		"/a",    "a/",     "a//b",     "a..b",
		".a",    "a/.b",   "a.",       "a b",
		"a~1",   "a^",     "a:b",      "a?",
		"a*",    "a[b",    "a\\b",     "a@{1",
		"@",     "a.lock", "a.lock/b", "a\tb",
		"a\x7f", "a\n",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		if (repository_ref_fault(good[i]))
			fail_msg("refused: %s", good[i]);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (!repository_ref_fault(bad[i]))
			fail_msg("taken: %s", bad[i]);
}

static void takes_secrets_of_one_line(void **state)
{
	(void)state;
	assert_null(repository_secret_fault("p w=:\xc3\xa4", 8));
	assert_non_null(repository_secret_fault("", 8));
	assert_non_null(repository_secret_fault("123456789", 8));
	assert_null(repository_secret_fault("12345678", 8));
	assert_non_null(repository_secret_fault("a\nb", 8));
	assert_non_null(repository_secret_fault("a\rb", 8));
	assert_non_null(repository_secret_fault("a\x7f", 8));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_https),
		cmocka_unit_test(refuses_other_places),
		cmocka_unit_test(bounds_urls_and_refs),
		cmocka_unit_test(takes_refs_as_git_does),
		cmocka_unit_test(takes_secrets_of_one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
