/*
 * attachments.h - images and files that come with a turn, as a request gives them.
 */
#ifndef DAEMON_API_ATTACHMENTS_H
#define DAEMON_API_ATTACHMENTS_H

#include "common/json.h"
#include "daemon/http/http.h"
#include "daemon/store/turn.h"

struct attachments {
	struct attachment v[ATTACHMENTS_MAX];
	size_t count;
	size_t bytes;
	struct json *list; /* what each is, but for its bytes: the images first */
};

#define auto_attachments __attribute__((cleanup(attachments_release)))
void attachments_release(struct attachments *a);

/*
 * Read the two arrays, either of which may be NULL, and check everything that
 * docs/api.md says of them.  False with the answer made, which names the place; *ret is
 * released by the caller either way.
 */
bool attachments_read(const struct http_request *req, struct http_response *res,
                      const struct json *images, const struct json *files, struct attachments *ret);

/* Put it on a turn that is to be inserted before a is released; false without memory. */
bool attachments_put(const struct attachments *a, struct turn *t);

#endif
