#include "common/test.h"

#include "common/attr.h"
#include "common/err.h"
#include "daemon/turn/removal.h"

#include <stdlib.h>
#include <string.h>

static void assert_asks(const char *text, bool want)
{
	if (removal_of_all(text, strlen(text)) == want)
		return;
	print_error("%s: %s\n", want ? "not seen" : "seen", text);
	fail();
}

static const char *const removals[] = {
	/* flags */
	"rm -rf /",
	"rm -fr /",
	"rm -r -f /",
	"rm -f -r /",
	"rm -Rf /",
	"rm -R /",
	"rm -vrf /",
	"rm --recursive --force /",
	"rm --force --recursive /",
	"rm --rec /",
	"rm / -rf",
	"rm -rf -- /",
	"rm -r -- /",
	"rm -rf --no-preserve-root /",
	/* places */
	"rm -rf /workspace",
	"rm -rf /workspace/",
	"rm -rf /workspace/.",
	"rm -rf //workspace",
	"rm -rf /workspace/*",
	"rm -rf /workspace/.*",
	"rm -rf /workspace/.[!.]*",
	"rm -rf /workspace/src/..",
	"rm -rf /tmp/../workspace",
	"rm -rf /./",
	"rm -rf /..",
	"rm -rf /*",
	"rm -rf /w*",
	"rm -rf /?orkspace",
	"rm -rf /[w]orkspace",
	"rm -rf /*/*",
	"rm -rf /{workspace,state}",
	"rm -rf ~",
	"rm -rf ~/",
	"rm -rf ~/*",
	"rm -rf ~root",
	"rm -rf $HOME",
	"rm -rf ${HOME}",
	"rm -rf \"$HOME\"/",
	"rm -rf ${HOME:-/}/*",
	"rm -rf /state/home",
	"rm -rf /state",
	"rm -rf /root",
	"rm -rf /home",
	"rm -rf /etc",
	"rm -rf .",
	"rm -rf ./",
	"rm -rf *",
	"rm -rf ./*",
	"rm -rf ..",
	"rm -rf ../..",
	"rm -rf ../workspace",
	"rm -rf $PWD",
	"rm -rf src /workspace",
	"rm -rf \"$DIR/\"",
	"rm -rf $DIR/*",
	"rm -rf ${DIR}/",
	/* quotes */
	"rm -rf \"/\"",
	"rm -rf '/'",
	"'rm' -rf /",
	"r\"\"m -rf /",
	"\\rm -rf /",
	"rm -r\\f \\/",
	"\"rm\" \"-rf\" \"/workspace\"",
	"rm -rf /work\"space\"",
	"rm -rf $'/'",
	"rm -rf $'\\x2f'",
	"rm \\\n -rf \\\n /",
	"rm -rf /work\\\nspace",
	/* in front of it */
	"sudo rm -rf /",
	"sudo -u root -- rm -rf /",
	"env rm -rf /",
	"env A=b rm -rf /",
	"A=b rm -rf /",
	"/bin/rm -rf /",
	"busybox rm -rf /",
	"nice -n 5 rm -rf /",
	"command rm -rf /",
	"exec rm -rf /",
	"timeout 5 rm -rf /",
	"sh -c 'rm -rf /'",
	"bash -c \"cd /tmp; rm -rf /\"",
	"if true; then rm -rf /; fi",
	"! rm -rf /",
	/* between others */
	"true; rm -rf /",
	"true && rm -rf /",
	"false || rm -rf /",
	"true & rm -rf /",
	"true\nrm -rf /\ntrue",
	"rm -rf /&& true",
	"rm -rf /;true",
	"(rm -rf /)",
	"{ rm -rf /; }",
	"$(rm -rf /)",
	"`rm -rf /`",
	"echo $(rm -rf /)",
	"true | rm -rf /",
	"rm -rf / >/dev/null 2>&1",
	"rm -rf />x",
	"\trm\t-rf\t/",
	"rm -rf /\r",
	/* places from elsewhere */
	"echo / | xargs rm -rf",
	"printf '%s' /workspace | xargs -0 rm -rf --",
	"rm -rf $(pwd)",
	"rm -rf `pwd`",
	"X=/; rm -rf $X",
	"cd / && rm -rf workspace",
	"cd /; rm -rf -- \"$x\"",
	"$(which rm) -rf /",
	"$RM -rf /workspace",
	/* find */
	"find / -delete",
	"find /workspace -mindepth 1 -delete",
	"find ~ -delete",
	"find . -delete",
	"find -delete",
	"find . -type f -delete",
	"find / -exec rm -rf {} +",
	"find /workspace -name '*' -delete",
	"find /workspace -exec rm -rf {} \\;",
	"find / -print0 | xargs -0 rm -rf",
	"find $HOME -delete",
	"sudo find / -delete",
	/* other languages */
	"python3 -c \"import shutil; shutil.rmtree('/workspace')\"",
	"node -e \"fs.rmSync('/', {recursive: true})\"",
	"npx rimraf /workspace",
};

static void what_removes_all_is_seen(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(removals); i++)
		assert_asks(removals[i], true);
}

/* What agents do all day. */
static void ordinary_work_is_not(void **state)
{
	static const char *const cases[] = {
		"",
		" ",
		";",
		"rm",
		"rm -rf",
		"rm -rf build",
		"rm -rf build/*",
		"rm -rf ./build",
		"rm -rf /workspace/build",
		"rm -rf /workspace/build/*",
		"rm -rf /tmp/x",
		"rm -rf /tmp/*",
		"rm -rf ~/.cache",
		"rm -rf $HOME/.cache/x",
		"rm -rf \"$tmp\"",
		"rm -rf \"$tmp/build\"",
		"rm -rf *.o",
		"rm -rf node_modules dist",
		"rm -rf ../build",
		"rm /workspace/x",
		"rm -f /workspace/*",
		"rm -f *.tmp",
		"rm x",
		"cd /workspace && rm -rf bin lib",
		"cd /workspace; make clean",
		"ls -R /",
		"ls -r /workspace",
		"grep -r x /workspace",
		"cp -r /etc /tmp/etc",
		"find . -name '*.o' -delete",
		"find build -delete",
		"find / -name x",
		"find /workspace -name '*.pyc' -delete",
		"find . -name node_modules -exec rm -rf {} +",
		"docker run --rm -v /:/x y",
		"git clean -fdx",
		"echo firmware -rf /",
		"make -C / rmdir -r",
		"rmdir /workspace",
		"chmod -R u+w /workspace",
		"tar -rf / x",
		"rsync -r / /tmp/x",
		"$CC -o x /workspace/x.c",
		"find /workspace/build | xargs rm -rf",
		"find . -name '*.log' | xargs rm -f",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_asks(cases[i], false);
}

/* Longer than what is kept of a word, and with bytes that are no text. */
static void odd_texts(void **state)
{
	static const char command[] = { 'r', 'm', ' ', '-', 'r', 'f', ' ' };
	char text[4096];

	(void)state;
	for (size_t n = 1; n < 2000; n += 97) {
		memset(text, '/', sizeof(text));
		memcpy(text, command, sizeof(command));
		assert_true(removal_of_all(text, 7 + n));
		for (size_t i = 8; i < 7 + n; i += 2)
			text[i] = '.';
		assert_true(removal_of_all(text, 7 + n));
		memset(text + 8, 'x', n);
		assert_true(removal_of_all(text, 8 + n) == (n >= 255));
	}
	assert_true(removal_of_all("rm\0-rf\0/", 8));
	assert_true(removal_of_all("rm -rf /\xff; rm -rf /", 20));
	assert_false(removal_of_all("\xff\xfe$", 3));
	assert_false(removal_of_all("${", 2));
	assert_false(removal_of_all("$", 1));
	assert_false(removal_of_all("\\", 1));
}

static void arguments_of_calls(void **state)
{
	static const struct {
		const char *arguments;
		bool asks;
	} cases[] = {
		{ "{\"command\":\"rm -rf \\u002f\"}", true },
		{ "{\"command\":\"true\\nrm -rf /\"}", true },
		{ "{\"input\":\"rm -rf /\\n\"}", true },
		{ "{\"command\":\"rm -rf workspace\",\"cwd\":\"/\"}", true },
		{ "{\"command\":\"rm -rf workspace\",\"cwd\":\"/tmp\"}", false },
		{ "{\"command\":\"rm -rf $x\",\"cwd\":\"/workspace\"}", true },
		{ "{\"path\":\"x\",\"content\":\"rm -rf /\"}", false },
		{ "{\"command\":[\"rm -rf /\"]}", false },
		{ "[]", false },
		{ "{}", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct json *doc = NULL;
		struct err e = ERR_INIT;

		assert_int_equal(
			json_parse(cases[i].arguments, strlen(cases[i].arguments), &doc, &e), 0);
		if (removal_in_call(doc) != cases[i].asks)
			fail_msg("%s", cases[i].arguments);
		json_free(&doc);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_removes_all_is_seen),
		cmocka_unit_test(ordinary_work_is_not),
		cmocka_unit_test(odd_texts),
		cmocka_unit_test(arguments_of_calls),
	};

	return RUN_TESTS(tests);
}
