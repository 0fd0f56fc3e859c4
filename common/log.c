#include "common/log.h"

#include "common/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *log_program = "cloister";
static enum log_level log_limit = LOG_INFO;

void log_setup(const char *program, enum log_level level)
{
	log_program = program;
	log_limit = level;
}

static size_t format_prefix(char *line, size_t size, enum log_level level)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	struct timespec now;
	struct tm tm;
	size_t len;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)gmtime_r(&now.tv_sec, &tm);
	len = strftime(line, size, "%Y-%m-%dT%H:%M:%S", &tm);
	len += (size_t)snprintf(line + len, size - len, ".%03ldZ %s %s: ", now.tv_nsec / 1000000,
	                        names[level], log_program);
	return len;
}

static void mask_control(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

void log_write(enum log_level level, const char *fmt, ...)
{
	char line[2048];
	int saved = errno;
	size_t len;
	va_list ap;

	if (level > log_limit)
		return;
	len = format_prefix(line, sizeof(line) - 1, level);
	va_start(ap, fmt);
	(void)vsnprintf(line + len, sizeof(line) - 1 - len, fmt, ap);
	va_end(ap);
	mask_control(line);
	len = strlen(line);
	line[len++] = '\n';
	if (write(STDERR_FILENO, line, len) < 0)
		errno = 0; /* nowhere left to report it */
	errno = saved;
}

bool log_paced(struct log_pace *pace, unsigned int *ret_left_out)
{
	uint64_t now = clock_mono_ms();
	uint_fast64_t next = atomic_load(&pace->next_ms);

	if (now < next ||
	    !atomic_compare_exchange_strong(&pace->next_ms, &next, now + LOG_PACE_MS)) {
		atomic_fetch_add(&pace->left_out, 1);
		return false;
	}
	*ret_left_out = atomic_exchange(&pace->left_out, 0);
	return true;
}
