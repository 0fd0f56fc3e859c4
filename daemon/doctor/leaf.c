#include "daemon/doctor/leaf.h"

#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_SIZE 64

/* The first line of a file; false when it cannot be read. */
static bool read_value(const char *dir, const char *name, char ret[VALUE_SIZE])
{
	char path[4200];
	auto_file FILE *f = NULL;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "re");
	ret[0] = '\0';
	if (!f || !fgets(ret, VALUE_SIZE, f))
		return false;
	ret[strcspn(ret, "\n")] = '\0';
	return true;
}

static bool expect(const char *dir, const char *name, uint64_t want, char *ret, size_t size)
{
	char value[VALUE_SIZE], text[24];

	(void)snprintf(text, sizeof(text), "%" PRIu64, want);
	if (!read_value(dir, name, value)) {
		(void)snprintf(ret, size, "%s: %s", name, strerror(errno));
		return false;
	}
	if (strcmp(value, text) == 0)
		return true;
	(void)snprintf(ret, size, "%s is %s, not %s", name, value, text);
	return false;
}

/* "QUOTA PERIOD", in whatever period. */
static bool expect_cpu(const char *dir, unsigned int hundredths, char *ret, size_t size)
{
	char value[VALUE_SIZE], *rest = NULL;
	uint64_t quota, period;

	if (read_value(dir, "cpu.max", value)) {
		quota = strtoull(value, &rest, 10); /* "max" is 0 here */
		period = strtoull(rest, NULL, 10);
		if (quota > 0 && quota * 100 == period * hundredths)
			return true;
	}
	(void)snprintf(ret, size, "cpu.max is \"%s\", not %u hundredths of a CPU", value,
	               hundredths);
	return false;
}

static bool expect_tasks(const char *dir, unsigned int processes, char *ret, size_t size)
{
	char value[VALUE_SIZE];

	if (read_value(dir, "pids.max", value) && strtoull(value, NULL, 10) >= processes)
		return true; /* "max" is 0 here */
	(void)snprintf(ret, size, "pids.max is \"%s\", no bound for %u processes", value,
	               processes);
	return false;
}

static bool expect_populated(const char *dir, char *ret, size_t size)
{
	char value[VALUE_SIZE];

	if (read_value(dir, "cgroup.procs", value))
		return true;
	(void)snprintf(ret, size, "no process of the sandbox is in it");
	return false;
}

bool leaf_fault(const char *dir, const struct limits *limits, char *ret_fault, size_t size)
{
	return !expect_populated(dir, ret_fault, size) ||
	       !expect(dir, "memory.max", limits->memory, ret_fault, size) ||
	       !expect(dir, "memory.swap.max", 0, ret_fault, size) ||
	       !expect(dir, "memory.oom.group", 1, ret_fault, size) ||
	       !expect_cpu(dir, limits->cpus, ret_fault, size) ||
	       !expect_tasks(dir, limits->processes, ret_fault, size);
}
