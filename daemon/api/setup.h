/* setup.h - the repository of a session: how it is asked for and shown. */
#ifndef DAEMON_API_SETUP_H
#define DAEMON_API_SETUP_H

#include "common/json.h"
#include "daemon/http/http.h"
#include "daemon/setup/setups.h"

#define SETUP_SUBJECT_SIZE (SETUP_URL_MAX + 2 * SETUP_REF_MAX + 16)

struct api;

struct setup_wish {
	const struct json *repository; /* NULL = none */
	bool has_cwd;                  /* the session's directory was asked for */
};

/*
 * Fill s->setup, and s->cwd unless that was asked for.  *ret borrows from wish, and has a
 * password when there is a credential.  False with the answer made (422 invalid_repository).
 */
bool setup_read(const struct http_request *req, struct http_response *res, struct api *api,
                const struct setup_wish *wish, struct session *s, struct setup_credential *ret);

/* All that is asked for but the credential, for the digest of a request; "" without any. */
void setup_subject(const struct setup *s, char ret[SETUP_SUBJECT_SIZE]);

/* NULL when the session has no repository. */
struct json *setup_json(const struct setup *s);

/* POST /v1/sessions/{id}/setup */
void sessions_setup(const struct http_request *req, struct http_response *res, void *ctx);

#endif
