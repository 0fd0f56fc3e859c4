/*
 * patch.h - patches to several files, as text and as what they come to.
 *
 *   *** Begin Patch
 *   *** Add File: PATH            then lines of content, each after "+"
 *   *** Delete File: PATH
 *   *** Update File: PATH         then "*** Move to: PATH" or not, and hunks
 *   *** End Patch
 *
 * docs/tools.md has the grammar.  Nothing here opens a file: text and content go in,
 * content comes out.
 */
#ifndef DAEMON_TOOL_PATCH_H
#define DAEMON_TOOL_PATCH_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

#define PATCH_TEXT_MAX     ((size_t)1 << 20) /* bytes of a patch */
#define PATCH_SECTIONS_MAX 50

enum patch_kind {
	PATCH_ADD,
	PATCH_DELETE,
	PATCH_UPDATE,
};

struct patch_line {
	char kind;      /* '@', ' ', '-' or '+' */
	const char *at; /* borrowed from the text; what follows kind, without its line end */
	size_t len;
};

struct patch_hunk {
	size_t first, count; /* in the patch's lines */
	size_t number;       /* line of the text where it begins */
	bool at_end;         /* what it replaces ends the file */
};

struct patch_section {
	enum patch_kind kind;
	char *path;          /* owned; not empty */
	char *to;            /* owned; NULL = it stays where it is */
	size_t first, count; /* of an update its hunks, else its lines */
	size_t number;       /* line of the text where it begins */
};

struct patch {
	struct patch_section *sections;
	size_t section_count;
	struct patch_hunk *hunks;
	size_t hunk_count;
	struct patch_line *lines;
	size_t line_count;
};

#define auto_patch __attribute__((cleanup(patch_release)))

/* Fill *ret, which borrows from text.  EINVAL: "line N: ..." of what is wrong. */
int patch_parse(const char *text, size_t len, struct patch *ret, struct err *e) must_check;
void patch_release(struct patch *p);

/*
 * Append what the section makes of the content old: of an addition its lines, of an update
 * old with its hunks applied.  EINVAL names the hunk that does not fit, or fits twice.
 */
int patch_apply(const struct patch *p, const struct patch_section *s, const struct buf *old,
                struct buf *out, struct err *e) must_check;

#endif
