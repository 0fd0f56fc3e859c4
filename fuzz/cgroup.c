/*
 * Files of cgroups, as text and as runner, launcher and doctor read them: the first ones of the
 * input are the files below in their order and those of cgroup_daemon.h, each up to a NUL.
 */
#include "fuzz/cgroup_daemon.h"
#include "fuzz/files.h"
#include "fuzz/fuzz.h"

#include "common/attr.h"
#include "common/fd.h"
#include "runner/cgroup.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#define SELF 77

static const char *const files[] = {
	"cgroup.controllers",
	"cgroup.type",
	"cgroup.procs",
	"cgroup.subtree_control",
	"sandboxes/cgroup.type",
	"sandboxes/cgroup.procs",
	"sandboxes/cgroup.subtree_control",
	"supervisor/cgroup.procs",
	"memory.events",
	"pids.events",
	"cgroup.events",
};

#define FILES (ARRAY_LEN(files) + DAEMON_FILES)

static char *texts[FILES];

static const char *name_of(size_t i)
{
	return i < ARRAY_LEN(files) ? files[i] : daemon_files[i - ARRAY_LEN(files)];
}

static void put_files(int dir, const char *data, size_t size)
{
	for (size_t i = 0; i < FILES; i++) {
		auto_close int fd =
			openat(dir, name_of(i), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		const char *end = size ? memchr(data, '\0', size) : NULL;
		size_t len = end ? (size_t)(end - data) : size;

		demand(fd >= 0 && write(fd, data, len) == (ssize_t)len);
		texts[i] = text_of(data, len);
		size -= len + (end != NULL);
		data += len + (end != NULL);
	}
}

static int open_dir(void)
{
	static int dir = -1;

	if (dir < 0) {
		dir = open(input_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		demand(dir >= 0 && mkdirat(dir, "sandboxes", 0700) == 0 &&
		       mkdirat(dir, "supervisor", 0700) == 0);
	}
	return dir;
}

/* The first line "key NUMBER", as the kernel writes it. */
static bool find_line(const char *text, const char *key, uint64_t *ret)
{
	while (*text) {
		size_t len = strcspn(text, "\n"), key_len = strlen(key);

		if (len > key_len && strncmp(text, key, key_len) == 0 && text[key_len] == ' ') {
			*ret = strtoull(text + key_len + 1, NULL, 10);
			return true;
		}
		text += len + (text[len] == '\n');
	}
	return false;
}

static void check_counters(const char *text)
{
	static const char *const keys[] = { "oom", "oom_kill", "oom_group_kill", "max",
		                            "populated" };

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		uint64_t value = 0;

		(void)find_line(text, keys[i], &value);
		demand(cgroup_counter(text, keys[i]) == value);
	}
}

static void check_cause(const struct cgroup *c)
{
	uint64_t killed =
		cgroup_counter(texts[8], "oom_kill") | cgroup_counter(texts[8], "oom_group_kill");
	enum cgroup_cause wanted = CGROUP_OTHER;

	if (killed)
		wanted = cgroup_counter(texts[8], "oom") ? CGROUP_MEMORY : CGROUP_MEMORY_AROUND;
	else if (cgroup_counter(texts[9], "max"))
		wanted = CGROUP_PROCESSES;
	demand(cgroup_cause(c) == wanted);
}

static bool is_inner(const char *type, const char *procs)
{
	return (strcmp(type, "domain") == 0 || strcmp(type, "domain\n") == 0) &&
	       (!*procs || strcmp(procs, "\n") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cgroup c = { .parent = -1, .dir = open_dir(), .limits = { .memory = 1 << 20 } };
	struct err e = ERR_INIT;
	char *whole;

	put_files(c.dir, (const char *)data, size);
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		check_counters(texts[i]);
	check_cause(&c);
	if (cgroup_check_place(c.dir, SELF, &e) == 0)
		demand(is_inner(texts[1], texts[2]) && is_inner(texts[4], texts[5]) &&
		       strstr(texts[0], "cpu") && strstr(texts[3], "memory") &&
		       strstr(texts[6], "pids") && strstr(texts[7], "77"));
	else
		demand(e.text[0]);
	demand(cgroup_verify(&c, SELF, &e) < 0); /* no file has its depth */
	whole = text_of(data, size);
	check_daemon_tree(&(struct daemon_tree){ input_dir(), whole, texts[0], texts[2],
	                                         texts + ARRAY_LEN(files) });
	free(whole);
	for (size_t i = 0; i < FILES; i++)
		free(texts[i]);
	return 0;
}
