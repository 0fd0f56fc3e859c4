#include "daemon/doctor/report.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define LINES_MAX 64
#define NAME_SIZE 24
#define TEXT_SIZE 1024

struct report {
	atomic_uint failures;
	atomic_uint lines;
	char names[LINES_MAX][NAME_SIZE];
};

int report_open(struct report **ret, struct err *e)
{
	void *memory = mmap(NULL, sizeof(**ret), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
	                    -1, 0);

	if (memory == MAP_FAILED)
		return err_errno(e, "memory for the report");
	*ret = memory;
	return 0;
}

void report_close(struct report **r)
{
	if (*r)
		(void)munmap(*r, sizeof(**r));
	*r = NULL;
}

static void note(struct report *r, const char *name)
{
	unsigned int at = atomic_fetch_add(&r->lines, 1);

	if (at < LINES_MAX)
		(void)snprintf(r->names[at], NAME_SIZE, "%s", name);
}

static void write_line(struct report *r, const char *verdict, const char *name, char *text)
{
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = ' ';
	printf("%-7s %-20s %s\n", verdict, name, text);
	(void)fflush(stdout);
	note(r, name);
}

#define REPORT(r, verdict, name, fmt)                         \
	do {                                                  \
		char text[TEXT_SIZE];                         \
		va_list ap;                                   \
                                                              \
		va_start(ap, fmt);                            \
		(void)vsnprintf(text, sizeof(text), fmt, ap); \
		va_end(ap);                                   \
		write_line(r, verdict, name, text);           \
	} while (0)

void report_ok(struct report *r, const char *name, const char *fmt, ...)
{
	REPORT(r, "ok", name, fmt);
}

void report_failed(struct report *r, const char *name, const char *fmt, ...)
{
	(void)atomic_fetch_add(&r->failures, 1);
	REPORT(r, "failed", name, fmt);
}

void report_na(struct report *r, const char *name, const char *fmt, ...)
{
	REPORT(r, "n/a", name, fmt);
}

unsigned int report_failures(const struct report *r)
{
	return atomic_load(&r->failures);
}

bool report_has(const struct report *r, const char *name)
{
	for (unsigned int i = 0; i < atomic_load(&r->lines) && i < LINES_MAX; i++)
		if (strcmp(r->names[i], name) == 0)
			return true;
	return false;
}
