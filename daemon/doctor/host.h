/*
 * host.h - what can be found out without a sandbox (inside this folder only).
 *
 * Each function writes the lines that its comment names.
 */
#ifndef DAEMON_DOCTOR_HOST_H
#define DAEMON_DOCTOR_HOST_H

#include "daemon/doctor/doctor.h"
#include "daemon/doctor/report.h"

#include <limits.h>
#include <stdbool.h>

/* user-namespaces, seccomp, landlock, pidfd, clone3.  service: what that profile needs. */
void host_kernel(struct report *r, bool service);

/* identity; false when nothing can be started like this. */
bool host_identity(struct report *r, bool service);

/* registry, workspaces. */
void host_registry(struct report *r, const struct doctor_conf *conf);

/* programs, rootfs, installed, tun, runsc, slirp4netns; false when a sandbox needs more. */
bool host_programs(struct report *r, const struct launcher_conf *conf, bool service);

/* cgroup.  ret_dir: the unit's own, "" without.  False when the profile needs it. */
bool host_cgroup(struct report *r, bool service, char ret_dir[PATH_MAX]);

/* postgresql: a cluster is made below place, an external server looked at. */
void host_postgresql(struct report *r, const struct doctor_conf *conf, const char *place);

/* -- parts, for their tests ------------------------------------------------------------- */

/* What to do when a user namespace cannot be made (error), or gives no powers (powerless). */
const char *kernel_userns_remedy(int error, bool powerless);

/* One line for what "cloister-runner probe" wrote; false when that is unusable. */
bool host_judge_probe(const char *json, size_t len, char *ret_text, size_t size);

#endif
