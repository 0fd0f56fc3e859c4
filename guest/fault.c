#include "guest/fault.h"

#include "common/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const char *errno_word(int code)
{
	switch (code) {
	case ENOENT:
		return "not_found";
	case ENOTDIR:
		return "not_a_directory";
	case EISDIR:
	case ENXIO: /* a socket, or a FIFO without a peer */
		return "not_a_file";
	case EACCES:
	case EPERM:
	case EROFS:
		return "denied";
	case EEXIST:
		return "exists";
	case ENOSPC:
	case EDQUOT:
		return "no_space";
	case EFBIG:
		return "too_large";
	case EINVAL:
	case ELOOP:
	case ENAMETOOLONG:
	case E2BIG:
		return "invalid";
	default:
		return "io";
	}
}

const char *fault_word(int code)
{
	static const char *const words[] = {
		[FAULT_NOT_A_FILE - ERR_PROGRAM_BASE] = "not_a_file",
		[FAULT_NOT_EXECUTABLE - ERR_PROGRAM_BASE] = "not_executable",
		[FAULT_NO_CWD - ERR_PROGRAM_BASE] = "no_cwd",
		[FAULT_CANCELLED - ERR_PROGRAM_BASE] = "cancelled",
		[FAULT_BUSY - ERR_PROGRAM_BASE] = "busy",
		[FAULT_AGAIN - ERR_PROGRAM_BASE] = "again",
		[FAULT_INVALID - ERR_PROGRAM_BASE] = "invalid",
		[FAULT_CHANGED - ERR_PROGRAM_BASE] = "changed",
	};
	int i = code - ERR_PROGRAM_BASE;

	if (i >= 0 && (size_t)i < ARRAY_LEN(words))
		return words[i];
	return errno_word(code);
}

void fault_die(enum guest_exit code, const char *fmt, ...)
{
	char text[500];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_error("%s", text);
	_exit((int)code);
}
