/*
 * secret.h - the passwords of an external database.
 *
 * The operator gives one, that of the owner.  Each tenant's role has another, which follows
 * from it and from the role's name, so that nothing has to be stored, and which tells nothing
 * of it.
 */
#ifndef DAEMON_STORE_SECRET_H
#define DAEMON_STORE_SECRET_H

#include "common/err.h"

#include <stddef.h>

#define SECRET_PASSWORD_SIZE 513 /* with the NUL */

struct secret;

/* A copy of the owner's password, at most SECRET_PASSWORD_SIZE - 1 bytes. */
int secret_new(const char *password, struct secret **ret, struct err *e) must_check;
void secret_free(struct secret **s); /* wipes it */

/* The password of a role. */
void secret_password(const struct secret *s, const char *role, char ret[SECRET_PASSWORD_SIZE]);

void secret_wipe(char *text, size_t size);

#endif
