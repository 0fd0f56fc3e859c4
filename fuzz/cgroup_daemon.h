/*
 * cgroup_daemon.h - the part of the target "cgroup" that is about readers of the daemon's,
 * whose headers do not go together with the runner's.
 */
#ifndef FUZZ_CGROUP_DAEMON_H
#define FUZZ_CGROUP_DAEMON_H

#include <stddef.h>

/* Files beside the runner's, in the order in which an input has them. */
#define DAEMON_FILES 11
extern const char *const daemon_files[DAEMON_FILES];

/*
 * Read the tree below dir as launcher and doctor do, and arrange it, which changes the files;
 * whole: the input as the text of /proc/self/cgroup.  controllers and procs are the texts of
 * dir's files of that name, texts those of daemon_files.
 */
struct daemon_tree {
	const char *dir, *whole, *controllers, *procs;
	char *const *texts;
};

void check_daemon_tree(const struct daemon_tree *t);

#endif
