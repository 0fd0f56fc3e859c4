/*
 * frame.h - the frames between the daemon and the guest (docs/protocol.md).
 *
 * Wire form: 4 bytes length of the payload, 1 byte type, 8 bytes call id, payload.
 * Integers are big-endian.  Control payloads are strict JSON, data payloads raw bytes.
 */
#ifndef COMMON_FRAME_H
#define COMMON_FRAME_H

#include "common/buf.h"
#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

#define FRAME_VERSION     1
#define FRAME_HEADER_SIZE 13
#define FRAME_DATA_MAX    65536  /* bytes in a data frame */
#define FRAME_CONTROL_MAX 262144 /* bytes in a control frame */
#define FRAME_VALUES_MAX  1024   /* values in what a guest says at once; see json_too_many() */
#define FRAME_WINDOW      262144 /* credit a data direction of a call starts with, bytes */
#define FRAME_CALLS_MAX   256    /* calls open at once on one sandbox */

enum frame_type {
	/* daemon to guest */
	FRAME_HELLO = 0x01, /* JSON; call id 0 */
	FRAME_START = 0x02, /* JSON; opens a call */
	FRAME_INPUT = 0x03, /* bytes for standard input or file content; uses credit */
	FRAME_END = 0x04,   /* empty; no more input */
	FRAME_CREDIT =
		0x05, /* 4 bytes: the receiver of output takes this many more; both directions */
	FRAME_CANCEL = 0x06, /* empty; end the call now */
	FRAME_PING = 0x07,   /* empty; call id is echoed */
	/* guest to daemon */
	FRAME_READY = 0x81,  /* JSON; answers HELLO; call id 0 */
	FRAME_STDOUT = 0x82, /* bytes; uses credit */
	FRAME_STDERR = 0x83, /* bytes; uses credit (the same as stdout) */
	FRAME_EXIT = 0x84,   /* JSON; ends a call, always the last frame of it */
	FRAME_PONG = 0x87,   /* 4 bytes: so many commands have left processes that live */
};

struct frame {
	enum frame_type type;
	uint64_t call;
	const char *payload; /* borrowed from the buffer it was read from */
	size_t len;
};

/* Append one frame to out.  The ceiling of out decides whether it fits. */
void frame_put(struct buf *out, enum frame_type type, uint64_t call, const void *payload,
               size_t len);

/* Append a FRAME_CREDIT of that many bytes. */
void frame_put_credit(struct buf *out, uint64_t call, uint32_t bytes);

/*
 * Read the first frame of data.  Returns 1 with *ret and *ret_size (bytes it
 * occupies), 0 when more bytes are needed, -1 (EPROTO) for an unknown type or a
 * payload above the limit of its type; then the channel cannot be trusted any more.
 */
int frame_get(const char *data, size_t len, struct frame *ret, size_t *ret_size, struct err *e);

/* The number that a FRAME_CREDIT or FRAME_PONG carries; 0 when the payload is not 4 bytes. */
uint32_t frame_number(const struct frame *f);

#endif
