/*
 * Every flag that a boundary hangs on is given, also where it repeats a default,
 * so that another release cannot change it silently.
 */
#include "runner/runsc.h"

#include "runner/bundle.h"
#include "runner/child.h"
#include "runner/root.h"

#include <linux/capability.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

static const char *const flags[] = {
	ROOT_RUNSC,
	("--root=" ROOT_RUNSC_DIR),
	"--log-fd=3",
	"--log-format=text",
	/* System calls of the guest are caught by seccomp traps; needs no /dev/kvm. */
	"--platform=systrap",
	/* gVisor's own network stack; the kernel's is never offered to the guest. */
	"--network=sandbox",
	/* No raw or packet sockets inside. */
	"--net-raw=false",
	/* cgroups are the runner's affair. */
	"--ignore-cgroups=true",
	/* We are root of a user namespace already. */
	"--rootless=false",
	/* The root is read-only, so nothing needs to be laid over it. */
	"--overlay2=none",
	/* The sentry opens files below the two mounts by itself, within its seccomp list: half the
	   time per file operation.  Without it, runsc wants to become nobody, an id that does not
	   exist in this namespace. */
	"--directfs=true",
	/* Nobody changes the root filesystem; the operator may change the tenant's directories. */
	"--file-access=exclusive",
	"--file-access-mounts=shared",
	/* A socket or FIFO in a workspace does not connect the sandbox to a process outside. */
	"--host-uds=none",
	"--host-fifo=none",
	/* The sandbox's own filters are not the OCI spec's to give. */
	"--oci-seccomp=false",
	"--allow-flag-override=false",
	"--profile=false",
	"--reproduce-nat=false",
	"--reproduce-nftables=false",
	/* Descriptors of sentry and gofer each. */
	"--fdlimit=8192",
	/* A sentry that hangs is dumped into the log and ended. */
	"--watchdog-action=panic",
};

static const char *const debug_flags[] = { "--debug=true", "--debug-log=" ROOT_DEBUG_LOG };

static const char *const command[] = { "run", "--bundle=" BUNDLE_DIR, "--pid-file=" ROOT_PID_FILE,
	                               "cell" };

/*
 * What runsc uses in its user namespace, found by taking one away at a time:
 * SYS_ADMIN to build the sentry's empty root and to join the network namespace,
 * SETFCAP to map id 0 into the gofer's user namespace, NET_ADMIN to take over the
 * interface's address and NET_RAW to open it.
 */
#define BIT(cap) (UINT64_C(1) << (cap))
#define KEPT     (BIT(CAP_SYS_ADMIN) | BIT(CAP_SETFCAP) | BIT(CAP_NET_ADMIN) | BIT(CAP_NET_RAW))

int runsc_exec(bool debug, struct err *e)
{
	const char *argv[ARRAY_LEN(flags) + ARRAY_LEN(debug_flags) + ARRAY_LEN(command) + 1];
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(flags); i++)
		argv[n++] = flags[i];
	for (size_t i = 0; debug && i < ARRAY_LEN(debug_flags); i++)
		argv[n++] = debug_flags[i];
	for (size_t i = 0; i < ARRAY_LEN(command); i++)
		argv[n++] = command[i];
	argv[n] = NULL;
	if (child_keep_capabilities(KEPT, e) < 0)
		return -1;
	return child_exec(ROOT_RUNSC, argv, e);
}
