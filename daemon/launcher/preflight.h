/*
 * preflight.h - what must be there before anything is started.
 *
 * There is no fallback for any of it.  Each error is one line that names what is
 * wrong and what to do.
 */
#ifndef DAEMON_LAUNCHER_PREFLIGHT_H
#define DAEMON_LAUNCHER_PREFLIGHT_H

#include "common/err.h"
#include "daemon/launcher/launcher.h"

/* Refuse root, capabilities, foreign groups and traces of set-user-ID. */
int preflight_self(struct err *e) must_check;

/* Programs, root filesystem and /dev/net/tun, all usable by this user. */
int preflight_check(const struct launcher_conf *conf, struct err *e) must_check;

/*
 * What the service profile demands besides: a user and group of its own, Landlock, and
 * programs and root filesystem that root alone can change.
 */
int preflight_service(const struct launcher_conf *conf, struct err *e) must_check;

/* Parts of preflight_service.  ret_abi: the version of Landlock's interface. */
int preflight_dedicated(struct err *e) must_check;
int preflight_landlock(int *ret_abi, struct err *e) must_check;
int preflight_installed(const struct launcher_conf *conf, struct err *e) must_check;

/* Parts of preflight_check. */
int preflight_program(const char *option, const char *path, const char *remedy, struct err *e)
	must_check;
int preflight_rootfs(const char *path, struct err *e) must_check;
int preflight_tun(const char *path, struct err *e) must_check;

#endif
