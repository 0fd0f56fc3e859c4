/*
 * policy.h - what a tenant's sandbox may reach and use, as the registry declares it.
 *
 * Both parts are optional; what is not given has the defaults below.  The texts are in
 * the form in which the runner takes them on its command line.
 */
#ifndef DAEMON_TENANT_POLICY_H
#define DAEMON_TENANT_POLICY_H

#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EGRESS_ALLOW_MAX     1000 /* entries */
#define EGRESS_PORTS_MAX     16   /* ports and ranges of one entry */
#define EGRESS_RESOLVERS_MAX 3
#define EGRESS_DNS_SIZE      48 /* three addresses, each with a comma or the end */

#define LIMITS_CPUS_DEFAULT      200 /* hundredths */
#define LIMITS_CPUS_MIN          10
#define LIMITS_CPUS_MAX          6400
#define LIMITS_MIB_DEFAULT       2048
#define LIMITS_MIB_MIN           256
#define LIMITS_MIB_MAX           1048576
#define LIMITS_PROCESSES_DEFAULT 512
#define LIMITS_PROCESSES_MIN     16
#define LIMITS_PROCESSES_MAX     32768

enum egress_mode {
	EGRESS_PUBLIC, /* everything but what is private, special or the host's own */
	EGRESS_NONE,   /* no network at all */
	EGRESS_ALLOW,  /* what the list opens, and nothing of the host */
};

struct egress {
	bool given;
	enum egress_mode mode;
	char **allow; /* "CIDR" or "CIDR:PORT[-PORT][,PORT[-PORT]...]"; owned */
	size_t allow_count;
	char dns[EGRESS_DNS_SIZE]; /* "off", "host", or "IP[,IP...]" */
};

struct limits {
	bool given;
	unsigned int cpus; /* hundredths of a CPU */
	uint64_t memory;   /* bytes */
	unsigned int processes;
};

/* v may be NULL: then *ret has the defaults.  Every fault is reported below path. */
void egress_read(const struct json *v, const char *path, struct json_faults *f, struct egress *ret);
void limits_read(const struct json *v, const char *path, struct json_faults *f, struct limits *ret);

void egress_release(struct egress *e);

const char *egress_mode_name(enum egress_mode mode);

/*
 * An IPv4 network in canonical form: "198.51.100.0/24", no bit set below the prefix.
 * The error does not repeat the text.
 */
int policy_cidr(const char *text, struct err *e) must_check;

#endif
