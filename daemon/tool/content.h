/*
 * content.h - whole files, for the tools that change them (inside this folder only).
 */
#ifndef DAEMON_TOOL_CONTENT_H
#define DAEMON_TOOL_CONTENT_H

#include "common/buf.h"
#include "daemon/sandbox/sandbox.h"

#define CONTENT_FILE_MAX ((size_t)4 << 20) /* bytes of a file that is edited */

struct content {
	char *path; /* owned; absolute */
	struct buf data;
	char version[FILE_VERSION_SIZE];
};

#define auto_content __attribute__((cleanup(content_release)))
#define CONTENT_INIT                               \
	{                                          \
		.data = BUF_INIT(CONTENT_FILE_MAX) \
	}

/* Read c->path.  SANDBOX_TOO_LARGE when it has more than CONTENT_FILE_MAX bytes. */
int content_read(const struct sandbox_use *use, struct content *c, struct err *e) must_check;

void content_release(struct content *c);

#endif
