/* leaf.h - the limits of a sandbox, as its cgroup has them (inside this folder only). */
#ifndef DAEMON_DOCTOR_LEAF_H
#define DAEMON_DOCTOR_LEAF_H

#include "daemon/tenant/policy.h"

/* True, and what is wrong, when the cgroup in dir does not hold a sandbox to its limits. */
bool leaf_fault(const char *dir, const struct limits *limits, char *ret_fault, size_t size);

#endif
