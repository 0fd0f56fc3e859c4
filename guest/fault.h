/*
 * fault.h - why a call, or the whole guest, came to an end.
 *
 * The code of a struct err is an errno value or one of enum fault; both have a
 * word in the protocol.
 */
#ifndef GUEST_FAULT_H
#define GUEST_FAULT_H

#include "common/attr.h"
#include "common/err.h"

enum fault {
	FAULT_NOT_A_FILE = ERR_PROGRAM_BASE,
	FAULT_NOT_EXECUTABLE,
	FAULT_NO_CWD,
	FAULT_CANCELLED,
	FAULT_BUSY,
	FAULT_AGAIN,
	FAULT_INVALID,
	FAULT_CHANGED,
};

/* Exit codes of cloister-guest besides 0, which follows the end of input. */
enum guest_exit {
	GUEST_EXIT_START = 1,     /* the guest itself could not start or go on */
	GUEST_EXIT_HANDSHAKE = 3, /* no acceptable HELLO */
	GUEST_EXIT_PROTOCOL = 4,  /* the daemon broke the protocol */
	GUEST_EXIT_TREE = 5, /* processes of a call could not be ended, or were lost track of */
};

/* The protocol's word for an error code; "io" for what has none. */
const char *fault_word(int code);

/* End the guest, and with it the sandbox, with one line on standard error. */
void fault_die(enum guest_exit code, const char *fmt, ...) printf_like(2, 3) no_return;

#endif
