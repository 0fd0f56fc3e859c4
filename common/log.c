#include "common/log.h"

#include "common/clock.h"
#include "common/id.h"
#include "common/utf8.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const levels[] = { "error", "warn", "info", "debug" };

static const char *log_program = "cloister";
static enum log_level log_limit = LOG_INFO;
static enum log_format form = LOG_TEXT;
static char instance[9];
static __thread const char *request;

/* Only errors and warnings take it. */
static pthread_mutex_t recent_lock = PTHREAD_MUTEX_INITIALIZER;
static struct log_line recent[LOG_RECENT];
static size_t recent_count; /* ever written */

void log_setup(const char *program, enum log_level level)
{
	log_program = program;
	log_limit = level;
}

void log_begin(enum log_format format)
{
	uint32_t bits;

	random_bytes(&bits, sizeof(bits));
	(void)snprintf(instance, sizeof(instance), "%08x", bits);
	form = format;
}

enum log_format log_form(void)
{
	return form;
}

const char *log_instance(void)
{
	return instance;
}

void log_request(const char *id)
{
	request = id;
}

/* -- one line ---------------------------------------------------------------------------- */

/* Controls of ASCII, and the later ones (U+0080 to U+009F), among which is one that begins
 * what a terminal obeys. */
static void mask_control(char *text)
{
	for (unsigned char *p = (unsigned char *)text; *p; p++) {
		if (*p < 0x20 || *p == 0x7f)
			*p = '?';
		if (*p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
			p[0] = p[1] = '?';
	}
}

/* A line is cut where it is too long: size is never reached by len. */
static size_t put(char *line, size_t len, size_t size, const char *text)
{
	size_t n = strlen(text);

	if (n > size - 1 - len)
		n = size - 1 - len;
	memcpy(line + len, text, n);
	line[len + n] = '\0';
	return len + n;
}

static size_t put_json(char *line, size_t len, size_t size, const char *text)
{
	bool valid = utf8_valid(text, strlen(text));

	for (const char *p = text; *p; p++) {
		char c = !valid && (unsigned char)*p >= 0x80 ? '?' : *p;
		const char piece[3] = { c == '"' || c == '\\' ? '\\' : c,
			                c == '"' || c == '\\' ? c : '\0', '\0' };

		len = put(line, len, size, piece);
	}
	return len;
}

static size_t put_field(char *line, size_t len, size_t size, const char *name, const char *value)
{
	if (!value || !*value)
		return len;
	len = put(line, len, size, len > 1 ? ",\"" : "\"");
	len = put(line, len, size, name);
	len = put(line, len, size, "\":\"");
	len = put_json(line, len, size, value);
	return put(line, len, size, "\"");
}

static size_t put_request(char *line, size_t len, size_t size)
{
	if (!request)
		return len;
	len = put(line, len, size, "request ");
	len = put(line, len, size, request);
	return put(line, len, size, ": ");
}

static size_t format_text(char *line, size_t size, enum log_level level, const char *now)
{
	size_t len = put(line, 0, size, now);

	len = put(line, len, size, " ");
	len = put(line, len, size, levels[level]);
	len = put(line, len, size, " ");
	len = put(line, len, size, log_program);
	if (instance[0]) {
		len = put(line, len, size, "[");
		len = put(line, len, size, instance);
		len = put(line, len, size, "]");
	}
	len = put(line, len, size, ": ");
	return put_request(line, len, size);
}

static size_t format_journal(char *line, size_t size, enum log_level level)
{
	static const char *const priorities[] = { "<3>", "<4>", "<6>", "<7>" };
	size_t len = put(line, 0, size, priorities[level]);

	if (instance[0]) {
		len = put(line, len, size, "[");
		len = put(line, len, size, instance);
		len = put(line, len, size, "] ");
	}
	return put_request(line, len, size);
}

static size_t format_json(char *line, size_t size, enum log_level level, const char *now,
                          const char *text)
{
	size_t len = put(line, 0, size, "{");

	len = put_field(line, len, size, "time", now);
	len = put_field(line, len, size, "level", levels[level]);
	len = put_field(line, len, size, "program", log_program);
	len = put_field(line, len, size, "instance", instance);
	len = put_field(line, len, size, "request", request);
	len = put_field(line, len, size, "message", text);
	return put(line, len, size, "}");
}

static size_t format_line(char *line, size_t size, enum log_level level, uint64_t now_ms,
                          const char *text)
{
	char now[CLOCK_TEXT_SIZE];
	size_t len;

	clock_format(now_ms, now);
	if (form == LOG_JSON)
		return format_json(line, size, level, now, text);
	len = form == LOG_JOURNAL ? format_journal(line, size, level)
	                          : format_text(line, size, level, now);
	return put(line, len, size, text);
}

static void remember(enum log_level level, uint64_t now_ms, const char *text)
{
	struct log_line *at;

	if (level > LOG_WARN)
		return;
	pthread_mutex_lock(&recent_lock);
	at = &recent[recent_count++ % LOG_RECENT];
	at->at_ms = now_ms;
	at->level = level;
	at->text[put(at->text, 0, sizeof(at->text), text)] = '\0';
	pthread_mutex_unlock(&recent_lock);
}

size_t log_recent(struct log_line ret[LOG_RECENT])
{
	size_t n;

	pthread_mutex_lock(&recent_lock);
	n = recent_count < LOG_RECENT ? recent_count : LOG_RECENT;
	for (size_t i = 0; i < n; i++)
		ret[i] = recent[(recent_count - 1 - i) % LOG_RECENT];
	pthread_mutex_unlock(&recent_lock);
	return n;
}

void log_forget(void)
{
	pthread_mutex_lock(&recent_lock);
	recent_count = 0;
	pthread_mutex_unlock(&recent_lock);
}

void log_write(enum log_level level, const char *fmt, ...)
{
	char text[LOG_TEXT_MAX + 1], line[LOG_LINE_MAX];
	uint64_t now_ms = clock_wall_ms();
	int saved = errno;
	size_t len;
	va_list ap;

	if (level > log_limit)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text[utf8_whole(text, strlen(text))] = '\0'; /* where it was cut */
	mask_control(text);
	remember(level, now_ms, text);
	len = format_line(line, sizeof(line) - 1, level, now_ms, text);
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
