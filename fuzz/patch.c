/*
 * Patches: what comes before the first NUL is one, what comes after it the content that it is
 * applied to.
 */
#include "fuzz/fuzz.h"

#include "daemon/tool/patch.h"

#include <string.h>

static void check_lines(const struct patch *p, const struct patch_section *s, const char *text,
                        size_t len)
{
	demand(s->path && s->path[0] && s->number > 0);
	demand(s->first + s->count <= (s->kind == PATCH_UPDATE ? p->hunk_count : p->line_count));
	for (size_t i = 0; s->kind == PATCH_ADD && i < s->count; i++) {
		const struct patch_line *line = &p->lines[s->first + i];

		demand(line->at >= text && line->at + line->len <= text + len);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data, *end = size ? memchr(text, '\0', size) : NULL;
	size_t len = end ? (size_t)(end - text) : size;
	auto_buf struct buf old = BUF_INIT(size + 1);
	struct err e = ERR_INIT;
	struct patch p = { 0 };

	if (end)
		buf_add(&old, end + 1, size - len - 1);
	if (patch_parse(text, len, &p, &e) == 0) {
		demand(p.section_count > 0 && p.section_count <= PATCH_SECTIONS_MAX);
		for (size_t i = 0; i < p.section_count; i++) {
			auto_buf struct buf out = BUF_INIT((size_t)4 << 20);

			check_lines(&p, &p.sections[i], text, len);
			if (p.sections[i].kind != PATCH_DELETE)
				(void)!patch_apply(&p, &p.sections[i], &old, &out, &e);
		}
	} else {
		demand(e.text[0]);
	}
	patch_release(&p);
	return 0;
}
