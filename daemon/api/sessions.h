/* sessions.h - /v1/sessions and what belongs to a session. */
#ifndef DAEMON_API_SESSIONS_H
#define DAEMON_API_SESSIONS_H

#include "common/json.h"
#include "daemon/http/http.h"
#include "daemon/store/session.h"

void sessions_create(const struct http_request *req, struct http_response *res, void *ctx);
void sessions_list(const struct http_request *req, struct http_response *res, void *ctx);
void sessions_show(const struct http_request *req, struct http_response *res, void *ctx);
void sessions_show_all(const struct http_request *const *reqs, struct http_response *const *res,
                       size_t n, void *ctx);
void sessions_change(const struct http_request *req, struct http_response *res, void *ctx);
void sessions_delete(const struct http_request *req, struct http_response *res, void *ctx);
void sessions_fork(const struct http_request *req, struct http_response *res, void *ctx);

/*
 * The working directory, resolved by its text alone: the daemon never looks at a
 * workspace.  Whether it exists is the guest's to say when something runs there.  False
 * with the answer made when it leads out of the workspace.
 */
bool sessions_cwd(const struct http_request *req, struct http_response *res, const char *text,
                  char ret_cwd[SESSION_CWD_MAX + 1]);

/* False with the answer made when text (may be NULL), called name, has more than max bytes. */
bool sessions_fits(const struct http_request *req, struct http_response *res, const char *name,
                   const struct json *text, size_t max);

#endif
