#include "daemon/tool/content.h"

#include <stdio.h>
#include <stdlib.h>

static void take(void *ctx, int stream, const char *data, size_t len)
{
	(void)stream;
	buf_add(ctx, data, len);
}

int content_read(const struct sandbox_use *use, struct content *c, struct err *e)
{
	struct output_sink sink = { take, &c->data };
	struct file_range range = { .limit = CONTENT_FILE_MAX };

	if (sandbox_read(use, c->path, &range, &sink, e))
		return err_wrap(e, "%s", c->path);
	if (range.size > CONTENT_FILE_MAX)
		return err_set(e, SANDBOX_TOO_LARGE, "%s: larger than %zu bytes", c->path,
		               CONTENT_FILE_MAX);
	if (buf_failed(&c->data))
		return err_set(e, SANDBOX_IO, "%s: no memory for it", c->path);
	(void)snprintf(c->version, sizeof(c->version), "%s", range.version);
	return 0;
}

void content_release(struct content *c)
{
	free(c->path);
	c->path = NULL;
	buf_release(&c->data);
}
