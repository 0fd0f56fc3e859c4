/* repository.h - what may be asked for as a session's repository. */
#ifndef DAEMON_SETUP_REPOSITORY_H
#define DAEMON_SETUP_REPOSITORY_H

#include <stdbool.h>

#define REPOSITORY_USERNAME_MAX 255  /* bytes */
#define REPOSITORY_PASSWORD_MAX 4096 /* bytes */

/* Each gives NULL, or what is wrong; static text. */

/*
 * https://host[:port]/path, with http:// as well when that is allowed: no other transport, no
 * user or password in it, no query, nothing that could be taken for an option.
 */
const char *repository_url_fault(const char *url, bool allow_http);

/* The name of a branch or tag, or a commit, as git check-ref-format has it. */
const char *repository_ref_fault(const char *ref);

/* A part of a credential: what git's protocol for them can carry. */
const char *repository_secret_fault(const char *text, unsigned int max);

#endif
