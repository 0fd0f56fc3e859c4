#include "common/err.h"

#include "common/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What was cut may end inside a character, and goes into JSON. */
static int end_whole(struct err *e)
{
	e->text[utf8_whole(e->text, strlen(e->text))] = '\0';
	return -1;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;

	e->code = code;
	va_start(ap, fmt);
	(void)vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	return end_whole(e);
}

static int set_errno(struct err *e, int code, const char *fmt, va_list ap) printf_like(3, 0);

static int set_errno(struct err *e, int code, const char *fmt, va_list ap)
{
	char reason[128];
	size_t len;

	e->code = code;
	(void)vsnprintf(e->text, sizeof(e->text), fmt, ap);
	len = strlen(e->text);
	(void)snprintf(e->text + len, sizeof(e->text) - len, ": %s",
	               strerror_r(code, reason, sizeof(reason)));
	errno = code;
	return end_whole(e);
}

int err_errno(struct err *e, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	(void)set_errno(e, saved, fmt, ap);
	va_end(ap);
	return -1;
}

bool err_is_shortage(int code)
{
	return code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM;
}

int err_shortage(struct err *e, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	(void)set_errno(e, saved, fmt, ap);
	va_end(ap);
	if (err_is_shortage(saved))
		e->code = ERR_SHORTAGE;
	return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char old[sizeof(e->text)];
	size_t len;
	va_list ap;

	memcpy(old, e->text, sizeof(old));
	va_start(ap, fmt);
	(void)vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	len = strlen(e->text);
	(void)snprintf(e->text + len, sizeof(e->text) - len, ": %s", old);
	return end_whole(e);
}
