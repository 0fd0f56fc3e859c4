/*
 * test_tool.h - for the tests of this folder: tools on the real guest, in a directory of
 * the test's own.
 */
#ifndef DAEMON_TOOL_TEST_TOOL_H
#define DAEMON_TOOL_TEST_TOOL_H

#include "common/test_files.h"
#include "daemon/sandbox/jobs.h"

#include "daemon/tool/tools.h"

#include <stdarg.h>
#include <sys/stat.h>

static char root[64];
static struct tool_outcome last; /* of the latest call */
static bool sees_images;         /* the model of the next calls */
static struct cancel *cancel_by; /* of the next calls; NULL = none */
static char progress_seen[65536];

static inline void take_progress(void *ctx, const char *text, size_t len, bool skipped)
{
	size_t have = strlen(progress_seen);

	(void)ctx;
	(void)skipped;
	if (have + len < sizeof(progress_seen)) {
		memcpy(progress_seen + have, text, len);
		progress_seen[have + len] = '\0';
	}
}

static inline int enter(void **state)
{
	(void)state;
	(void)snprintf(root, sizeof(root), "/tmp/tool-XXXXXX");
	if (!mkdtemp(root) || chdir(root) < 0)
		return -1;
	begin(behave_real, START_MS, 60000);
	return 0;
}

static inline int leave(void **state)
{
	char rm[] = "rm", all[] = "-rf";
	char *const argv[] = { rm, all, root, NULL };
	pid_t pid;
	int status;

	(void)state;
	tool_outcome_release(&last);
	end();
	return chdir("/") == 0 && posix_spawnp(&pid, "rm", NULL, NULL, argv, NULL) == 0 &&
	                       waitpid(pid, &status, 0) == pid && status == 0
	               ? 0
	               : -1;
}

/* Run a tool with these arguments; what tool_run() returned. */
static inline int use_tool(const char *tool, const char *arguments, struct err *e)
{
	const struct uuid id = tenant(0);
	const struct tool_context c = { .sandboxes = boxes,
		                        .tenant = &id,
		                        .cwd = root,
		                        .cancel = cancel_by,
		                        .sees_images = sees_images,
		                        .progress = take_progress };
	struct item call = { .kind = ITEM_TOOL_CALL };

	(void)snprintf(call.tool, sizeof(call.tool), "%s", tool);
	call.body = strdup(arguments);
	call.body_len = strlen(arguments);
	tool_outcome_release(&last);
	if (tool_run(&c, &call, &last, e)) {
		free(call.body);
		last = (struct tool_outcome){ .details = NULL };
		return -1;
	}
	free(call.body);
	return 0;
}

/* Run it; the text of the result, valid until the next one. */
static inline const char *run_tool(const char *tool, const char *arguments)
{
	struct err e = ERR_INIT;

	if (use_tool(tool, arguments, &e)) {
		print_error("%s %s: %s\n", tool, arguments, e.text);
		fail();
	}
	assert_non_null(last.result.body);
	assert_int_equal(last.result.body_len, strlen(last.result.body ? last.result.body : ""));
	return last.result.body;
}

static inline void expect_tool(const char *tool, const char *arguments, const char *want, int line)
{
	const char *text = run_tool(tool, arguments);

	if (strncmp(text, want, strlen(want)) != 0) {
		print_error("line %d: %s %s\n-> %.400s\nnot %s\n", line, tool, arguments, text,
		            want);
		fail();
	}
}

/* The result begins with want. */
#define BEGINS(tool, arguments, want) expect_tool(tool, arguments, want, __LINE__)

static inline void has(const char *words)
{
	if (!strstr(last.result.body, words)) {
		print_error("%.2000s\nhas no %s\n", last.result.body, words);
		fail();
	}
}

static inline void put(const char *name, const char *text)
{
	put_bytes(name, text, strlen(text));
}

#endif
