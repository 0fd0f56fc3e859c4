#include "daemon/turn/attached.h"

#include "common/buf.h"
#include "common/fd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 512
#define NOTE_BYTES 16384

int attached_read(struct attached *a, const struct turn *t, struct err *e)
{
	attached_release(a);
	a->turn = t->id;
	if (!t->attachments)
		return 0;
	if (json_parse(t->attachments, strlen(t->attachments), &a->list, e))
		return err_wrap(e, "attachments of turn %s", t->id.text);
	return 0;
}

void attached_release(struct attached *a)
{
	json_free(&a->list);
}

static const char *text_of(const struct attached *a, size_t i, const char *key)
{
	const char *text = json_str(json_get(json_at(a->list, i), key));

	return text ? text : "";
}

static void path_of(const struct attached *a, size_t i, char ret[PATH_BYTES])
{
	(void)snprintf(ret, PATH_BYTES, "/workspace/.cloister/%s/%zu/%s", a->turn.text, i + 1,
	               text_of(a, i, "name"));
}

/* What is about the sandbox as a whole keeps its code; the rest is about this file. */
static int not_written(const char *path, struct err *e)
{
	if (e->code > SANDBOX_NO_ROOM)
		e->code = TURNS_NOT_ATTACHED;
	return err_wrap(e, "%s", path);
}

static int write_one(const struct attached *a, size_t i, struct store *s,
                     const struct tool_context *c, struct err *e)
{
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };
	struct attachment data = { .data = NULL };
	char path[PATH_BYTES];
	int rc;

	if (turn_attachment(s, c->tenant, &a->turn, (int)i + 1, &data, e))
		return -1;
	path_of(a, i, path);
	rc = sandbox_write(&use, path, data.data, data.len, e);
	free(data.data);
	return rc ? not_written(path, e) : 0;
}

int attached_write(const struct attached *a, struct store *s, const struct tool_context *c,
                   struct err *e)
{
	for (size_t i = 0; i < json_len(a->list); i++)
		if (write_one(a, i, s, c, e))
			return -1;
	return 0;
}

static void add_note(const struct attached *a, struct buf *text)
{
	char path[PATH_BYTES];

	buf_adds(text, "\n\n[attached, in the sandbox:");
	for (size_t i = 0; i < json_len(a->list); i++) {
		path_of(a, i, path);
		buf_addf(text, "\n%s (%s, %" PRId64 " bytes)", path, text_of(a, i, "mimeType"),
		         json_int(json_get(json_at(a->list, i), "size")));
	}
	buf_adds(text, "]");
}

bool attached_tell(const struct attached *a, struct transcript *t)
{
	struct item *input = t->list.items;

	if (!a->list || t->told || !t->list.count)
		return true;
	auto_buf struct buf text = BUF_INIT(input->body_len + NOTE_BYTES);

	buf_add(&text, input->body, input->body_len);
	add_note(a, &text);
	if (buf_failed(&text))
		return false;
	free(input->body);
	input->body_len = text.len;
	input->body = buf_take(&text);
	t->told = true;
	return input->body != NULL;
}

int attached_image(const struct attached *a, struct store *s, const struct uuid *tenant,
                   struct model_image *ret, struct err *e)
{
	struct attachment data = { .data = NULL };

	*ret = (struct model_image){ .data = NULL };
	for (size_t i = 0; i < json_len(a->list); i++) {
		const char *type = text_of(a, i, "mimeType");

		/* No provider takes a bitmap; the model has its path. */
		if (strcmp(text_of(a, i, "kind"), "image") != 0 || strcmp(type, "image/bmp") == 0)
			continue;
		if (turn_attachment(s, tenant, &a->turn, (int)i + 1, &data, e))
			return -1;
		*ret = (struct model_image){ .type = type, .data = data.data, .len = data.len };
		return 0;
	}
	return 0;
}
