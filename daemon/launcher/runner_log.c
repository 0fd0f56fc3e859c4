#include "daemon/launcher/runner_log.h"

#include "common/log.h"
#include "common/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "2026-01-31T12:00:00.123Z", as common/log writes it. */
#define STAMP_LEN 24

void runner_log_init(struct runner_log *l, const struct uuid *tenant, uint64_t now_ms)
{
	memset(l, 0, sizeof(*l));
	l->tenant = *tenant;
	l->budget = RUNNER_LOG_BURST;
	l->filled_ms = now_ms;
}

static bool take_budget(struct runner_log *l, uint64_t now_ms)
{
	uint64_t fresh = (now_ms - l->filled_ms) * RUNNER_LOG_RATE / 1000;

	if (fresh > 0) {
		uint64_t sum = l->budget + fresh;

		l->budget = sum < RUNNER_LOG_BURST ? (unsigned int)sum : RUNNER_LOG_BURST;
		l->filled_ms = now_ms;
	}
	if (l->budget == 0)
		return false;
	l->budget--;
	return true;
}

/* -- from one runner to the next ----------------------------------------------------------- */

struct runner_log_past {
	struct runner_log_past *next;
	struct uuid tenant;
	unsigned int budget;
	uint64_t filled_ms;
};

/* By then there is a whole burst again, as there is for who is not remembered. */
static bool is_over(const struct runner_log_past *p, uint64_t now_ms)
{
	return now_ms - p->filled_ms >=
	       (uint64_t)(RUNNER_LOG_BURST - p->budget) * 1000 / RUNNER_LOG_RATE;
}

/* Forget one tenant, or NULL, and all to whom nothing is counted any more. */
static void drop(struct runner_log_past **list, const struct uuid *tenant, uint64_t now_ms)
{
	struct runner_log_past *p;

	while ((p = *list)) {
		if ((tenant && uuid_equal(&p->tenant, tenant)) || is_over(p, now_ms)) {
			*list = p->next;
			free(p);
		} else {
			list = &p->next;
		}
	}
}

void runner_log_resume(struct runner_log *l, struct runner_log_past **list, uint64_t now_ms)
{
	for (const struct runner_log_past *p = *list; p; p = p->next) {
		if (!uuid_equal(&p->tenant, &l->tenant))
			continue;
		l->budget = p->budget;
		l->filled_ms = p->filled_ms;
	}
	drop(list, &l->tenant, now_ms);
}

/* Without memory for it the next one has a burst of its own. */
void runner_log_keep(const struct runner_log *l, struct runner_log_past **list, uint64_t now_ms)
{
	struct runner_log_past *p = malloc(sizeof(*p));

	drop(list, &l->tenant, now_ms);
	if (!p)
		return;
	*p = (struct runner_log_past){ *list, l->tenant, l->budget, l->filled_ms };
	*list = p;
}

void runner_log_forget(struct runner_log_past **list)
{
	drop(list, NULL, UINT64_MAX);
}

/* -- lines ----------------------------------------------------------------------------------- */

/* The level that a line of common/log names, and where its message begins. */
static enum log_level parse_line(const char *line, const char **ret_message)
{
	static const struct {
		const char *name;
		enum log_level level;
	} levels[] = {
		{ "error ", LOG_ERROR },
		{ "warn ", LOG_WARN },
		{ "info ", LOG_INFO },
		{ "debug ", LOG_DEBUG },
	};
	const char *rest, *message;

	*ret_message = line;
	if (strnlen(line, STAMP_LEN + 1) <= STAMP_LEN || line[10] != 'T' ||
	    line[STAMP_LEN - 1] != 'Z' || line[STAMP_LEN] != ' ')
		return LOG_INFO;
	rest = line + STAMP_LEN + 1;
	for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
		if (strncmp(rest, levels[i].name, strlen(levels[i].name)) != 0)
			continue;
		message = strstr(rest, ": ");
		if (message)
			*ret_message = message + 2;
		return levels[i].level;
	}
	return LOG_INFO;
}

static void keep_reason(struct runner_log *l, const char *message)
{
	size_t len = strlen(message);

	if (len >= sizeof(l->reason))
		len = utf8_whole(message, sizeof(l->reason) - 1);
	memcpy(l->reason, message, len);
	l->reason[len] = '\0';
	for (char *p = l->reason; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
}

static void say_left_out(struct runner_log *l)
{
	if (l->left_out > 0)
		log_warn("tenant %s: runner: %" PRIu64 " lines left out here", l->tenant.text,
		         l->left_out);
	l->left_out = 0;
}

static void end_line(struct runner_log *l, uint64_t now_ms)
{
	const char *message;
	enum log_level level;

	l->line[l->len] = '\0';
	l->len = strlen(l->line);
	if (l->len > 0) {
		level = parse_line(l->line, &message);
		keep_reason(l, message);
		if (take_budget(l, now_ms)) {
			say_left_out(l);
			log_write(level, "tenant %s: runner: %s%s", l->tenant.text, message,
			          l->cut ? " [cut]" : "");
		} else {
			l->left_out++;
		}
	}
	l->len = 0;
	l->cut = false;
}

void runner_log_feed(struct runner_log *l, const char *data, size_t len, uint64_t now_ms)
{
	while (len > 0) {
		const char *newline = memchr(data, '\n', len);
		size_t part = newline ? (size_t)(newline - data) : len;
		size_t room = RUNNER_LOG_LINE - l->len;
		size_t kept = part < room ? part : room;

		memcpy(l->line + l->len, data, kept);
		l->len += kept;
		if (kept < part)
			l->cut = true;
		if (newline) {
			end_line(l, now_ms);
			part++;
		}
		data += part;
		len -= part;
	}
}

void runner_log_end(struct runner_log *l, uint64_t now_ms)
{
	end_line(l, now_ms);
	say_left_out(l);
}
