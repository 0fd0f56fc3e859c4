/*
 * Every flag that a boundary hangs on is given, also where it repeats a default,
 * so that another release cannot change it silently.  Some flags came later or may
 * go: those are given to binaries that know them, because what they switch off does
 * not exist in the others.  A binary without one that is needed is refused.
 */
#include "runner/runsc.h"

#include "runner/bundle.h"
#include "runner/child.h"
#include "runner/root.h"

#include <errno.h>
#include <linux/capability.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct flag_row {
	const char *text; /* as it is given */
	bool needed;
};

static const struct flag_row flags[] = {
	{ "--root=" ROOT_RUNSC_DIR, true },
	{ "--log-fd=3", true },
	{ "--log-format=text", true },
	/* System calls of the guest are caught by seccomp traps; needs no /dev/kvm. */
	{ "--platform=systrap", true },
	/* No raw or packet sockets inside. */
	{ "--net-raw=false", true },
	{ "--allow-packet-socket-write=false", false },
	{ "--TESTONLY-allow-packet-endpoint-write=false", false }, /* its older name */
	/* No packets past the network stack, straight to the interface's queues. */
	{ "--EXPERIMENTAL-xdp=off", false },
	/* cgroups are the runner's affair, and no view of them is inside. */
	{ "--ignore-cgroups=true", true },
	{ "--systemd-cgroup=false", false },
	{ "--cgroupfs=false", false },
	/* We are root of a user namespace already. */
	{ "--rootless=false", true },
	/* The root is read-only, so nothing needs to be laid over it; releases that cannot bound
	   what is laid over would let a tenant fill the memory with it. */
	{ "--overlay2=none", true },
	/* The sentry opens files below the two mounts by itself, within its seccomp list: half the
	   time per file operation.  Without it, runsc wants to become nobody, an id that does not
	   exist in this namespace.  (Until the end of 2024 its lgetxattr(2) says EBADF for symbolic
	   links, which "ls -l" prints.) */
	{ "--directfs=true", true },
	/* Nobody changes the root filesystem; the operator may change the tenant's directories. */
	{ "--file-access=exclusive", true },
	{ "--file-access-mounts=shared", true },
	/* A socket, FIFO or device in a workspace does not connect the sandbox to something
	   outside. */
	{ "--host-uds=none", true },
	{ "--fsgofer-host-uds=false", false }, /* its older name */
	{ "--host-fifo=none", false },
	{ "--character-device-policy=emulated-only", false },
	/* The sandbox's own filters are not the OCI spec's to give. */
	{ "--oci-seccomp=false", true },
	{ "--allow-flag-override=false", true },
	{ "--allow-rootfs-tar-annotation=false", false },
	{ "--allow-suid=false", false },
	{ "--profile=false", true },
	{ "--reproduce-nat=false", false },
	{ "--reproduce-nftables=false", false },
	{ "--TESTONLY-nftables=false", false },
	/* No way around the sentry to devices, and none to io_uring. */
	{ "--nvproxy=false", false },
	{ "--nvproxy-docker=false", false },
	{ "--tpuproxy=false", false },
	{ "--rdmaproxy=false", false },
	{ "--iouring=false", false },
	/* What gVisor's own tests need: walls taken away, and a call that ends the sentry. */
	{ "--TESTONLY-unsafe-nonroot=false", false },
	{ "--TESTONLY-afs-syscall-panic=false", false },
	/* What a tenant's programs do and send is not for the operator's log. */
	{ "--strace=false", false },
	{ "--log-packets=false", false },
	{ "--debug-to-user-log=false", false },
	/* The host's settings are the operator's. */
	{ "--host-settings=ignore", false },
	/* Descriptors of sentry and gofer each. */
	{ "--fdlimit=8192", false },
	/* A sentry that hangs is dumped into the log and ended. */
	{ "--watchdog-action=panic", true },
	/* Of the next ones, the wish decides which value is given. */
	{ "--network=", true },
	{ "--debug=", true },
	{ "--debug-log=", true },
};

_Static_assert(ARRAY_LEN(flags) <= RUNSC_FLAGS_MAX, "facts have room for every flag");

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

/* -- what a binary says ------------------------------------------------------------ */

static size_t name_length(size_t i)
{
	return strcspn(flags[i].text + 2, "=");
}

const char *runsc_flag_name(size_t i)
{
	static char names[ARRAY_LEN(flags)][64];

	if (i >= ARRAY_LEN(flags))
		return NULL;
	(void)snprintf(names[i], sizeof(names[i]), "%.*s", (int)name_length(i), flags[i].text + 2);
	return names[i];
}

bool runsc_flag_needed(size_t i)
{
	return flags[i].needed;
}

/* The rest of the first line that starts with what; false when it does not fit or is not there. */
static bool take_line(const char *text, const char *what, char *ret, size_t size)
{
	size_t len = strlen(what);

	for (const char *line = text; *line; line += *line == '\n') {
		size_t rest = strcspn(line, "\n");

		if (rest > len && memcmp(line, what, len) == 0) {
			int n = snprintf(ret, size, "%.*s", (int)(rest - len), line + len);

			return n > 0 && (size_t)n < size;
		}
		line += rest;
	}
	return false;
}

int runsc_read_version(const char *text, struct runsc_facts *ret, struct err *e)
{
	if (take_line(text, "runsc version ", ret->version, sizeof(ret->version)) &&
	    take_line(text, "spec: ", ret->spec, sizeof(ret->spec)))
		return 0;
	return err_set(e, EINVAL, "it does not say its version as gVisor does");
}

/* The flag's line: two blanks, one dash, its name, and a blank or the end. */
static const char *find_flag(const char *text, const char *name, size_t len)
{
	for (const char *line = text; *line; line += *line == '\n') {
		if (strncmp(line, "  -", 3) == 0 && strncmp(line + 3, name, len) == 0 &&
		    (line[3 + len] == ' ' || line[3 + len] == '\n' || line[3 + len] == '\0'))
			return line;
		line += strcspn(line, "\n");
	}
	return NULL;
}

/* What is said of a flag, up to the next one, mentions it. */
static bool flag_mentions(const char *at, const char *what)
{
	const char *end = strstr(at, "\n  -");
	const char *found = strstr(at, what);

	return found && (!end || found < end);
}

int runsc_read_flags(const char *text, struct runsc_facts *ret, struct err *e)
{
	const char *overlay = find_flag(text, "overlay2", strlen("overlay2"));

	for (size_t i = 0; i < ARRAY_LEN(flags); i++)
		ret->knows[i] = find_flag(text, flags[i].text + 2, name_length(i)) != NULL;
	ret->overlay_size = overlay && flag_mentions(overlay, "size=");
	if (!find_flag(text, "root", 4) || !find_flag(text, "platform", 8))
		return err_set(e, EINVAL, "it does not list its flags as gVisor does");
	return 0;
}

/* -- what it is given ---------------------------------------------------------------- */

static bool is_wish(size_t i)
{
	return flags[i].text[2 + name_length(i) + 1] == '\0';
}

int runsc_decide(const struct runsc_facts *facts, const struct runsc_wish *wish,
                 const char *ret_argv[RUNSC_ARGS_MAX], struct err *e)
{
	size_t n = 0;

	ret_argv[n++] = ROOT_RUNSC;
	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		if (!facts->knows[i] && flags[i].needed)
			return err_set(e, ENOTSUP,
			               "runsc %s does not know --%s, which the boundary needs; "
			               "install another release",
			               facts->version, runsc_flag_name(i));
		if (facts->knows[i] && !is_wish(i))
			ret_argv[n++] = flags[i].text;
	}
	/* gVisor's own network stack; the kernel's is never offered to the guest. */
	ret_argv[n++] = wish->network ? "--network=sandbox" : "--network=none";
	for (size_t i = 0; wish->debug && i < ARRAY_LEN(debug_flags); i++)
		ret_argv[n++] = debug_flags[i];
	for (size_t i = 0; i < ARRAY_LEN(command); i++)
		ret_argv[n++] = command[i];
	ret_argv[n] = NULL;
	return 0;
}

int runsc_exec(const char *const *argv, struct err *e)
{
	if (child_keep_capabilities(KEPT, e) < 0)
		return -1;
	return child_exec(ROOT_RUNSC, argv, e);
}
