/*
 * A Landlock domain without a single right to a file: all that the server reads was
 * read before, and all that it has open stays usable.  What a newer kernel can refuse
 * in addition is refused where it can: TCP from version 4 on, signals and abstract
 * sockets out of the domain from 6 on.  In every version the domain may not trace, nor
 * open the memory of, a process outside.
 */
#include "daemon/confine/confine.h"

#include "common/fd.h"
#include "common/sanitizer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The headers of older distributions stop at version 2. */
#define FS_VERSION_1    ((1ULL << 13) - 1) /* execute to make_sym */
#define FS_REFER        (1ULL << 13)       /* version 2 */
#define FS_TRUNCATE     (1ULL << 14)       /* 3 */
#define NET_BIND_TCP    (1ULL << 0)        /* 4 */
#define NET_CONNECT_TCP (1ULL << 1)        /* 4 */
#define FS_IOCTL_DEV    (1ULL << 15)       /* 5 */
#define SCOPE_ABSTRACT  (1ULL << 0)        /* 6 */
#define SCOPE_SIGNAL    (1ULL << 1)        /* 6 */
#define RULE_NET_PORT   2

#define READ_BELOW (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)

/* Shorter in older versions, which take the longer one as long as the rest is 0. */
struct domain {
	uint64_t fs;
	uint64_t net;
	uint64_t scoped;
};

struct port_rule {
	uint64_t access;
	uint64_t port;
};

static struct domain refuse_all(int abi)
{
	struct domain d = { .fs = FS_VERSION_1 };

	if (abi >= 2)
		d.fs |= FS_REFER;
	if (abi >= 3)
		d.fs |= FS_TRUNCATE;
	if (abi >= 4)
		d.net = NET_BIND_TCP | NET_CONNECT_TCP;
	if (abi >= 5)
		d.fs |= FS_IOCTL_DEV;
	if (abi >= 6)
		d.scoped = SCOPE_ABSTRACT | SCOPE_SIGNAL;
	return d;
}

static int allow_port(int ruleset, uint64_t access, uint16_t port, struct err *e)
{
	const struct port_rule rule = { access, port };

	if (syscall(SYS_landlock_add_rule, ruleset, RULE_NET_PORT, &rule, 0) < 0)
		return err_errno(e, "Landlock: allow port %u", port);
	return 0;
}

static int allow_path(int ruleset, const char *path, uint64_t access, struct err *e)
{
	auto_close int fd = open(path, O_PATH | O_CLOEXEC);
	const struct landlock_path_beneath_attr rule = { .allowed_access = access,
		                                         .parent_fd = fd };

	if (fd < 0)
		return err_errno(e, "%s", path);
	if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		return err_errno(e, "Landlock: allow reading %s", path);
	return 0;
}

#if SANITIZED
static int allow_runtime(int ruleset, struct err *e)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n <= 0)
		return err_errno(e, "/proc/self/exe");
	path[n] = '\0';
	*(strrchr(path, '/') + 1) = '\0';
	if (allow_path(ruleset, path, READ_BELOW, e) < 0 ||
	    allow_path(ruleset, "/proc/self", READ_BELOW, e) < 0)
		return -1;
	return allow_path(ruleset, "/usr", READ_BELOW, e);
}
#else
static int allow_runtime(int ruleset, struct err *e)
{
	(void)ruleset;
	(void)e;
	return 0;
}
#endif

/* What a process keeps: rights that are added to the domain of refusals. */
struct kept {
	int (*allow)(int ruleset, bool tcp, const struct kept *kept, struct err *e);
	const uint16_t *ports;
	size_t port_count;
};

static int enter_domain(const struct kept *kept, int *ret_abi, struct err *e)
{
	auto_close int ruleset = -1;
	struct domain domain;
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	if (abi < 0 && (errno == ENOSYS || errno == EOPNOTSUPP)) {
		*ret_abi = 0;
		return 0;
	}
	if (abi < 0)
		return err_errno(e, "Landlock: ask for its version");
	domain = refuse_all((int)abi);
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &domain, sizeof(domain), 0);
	if (ruleset < 0)
		return err_errno(e, "Landlock: make the domain");
	if (kept->allow(ruleset, domain.net, kept, e) < 0 || allow_runtime(ruleset, e) < 0)
		return -1;
	if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		return err_errno(e, "Landlock: enter the domain");
	*ret_abi = (int)abi;
	return 0;
}

static int allow_ports(int ruleset, uint64_t access, const struct kept *kept, struct err *e)
{
	for (size_t i = 0; i < kept->port_count; i++)
		if (allow_port(ruleset, access, kept->ports[i], e) < 0)
			return -1;
	return 0;
}

static int allow_server(int ruleset, bool tcp, const struct kept *kept, struct err *e)
{
	return tcp ? allow_ports(ruleset, NET_BIND_TCP, kept, e) : 0;
}

int confine_files(uint16_t port, int *ret_abi, struct err *e)
{
	return enter_domain(&(struct kept){ allow_server, &port, 1 }, ret_abi, e);
}

/*
 * What the name service of glibc reads: its settings and modules.  Systems differ, and
 * what is not there need not be read.
 */
static int allow_names(int ruleset, struct err *e)
{
	static const struct {
		const char *path;
		uint64_t access;
	} places[] = {
		{ "/etc/resolv.conf", LANDLOCK_ACCESS_FS_READ_FILE },
		{ "/etc/hosts", LANDLOCK_ACCESS_FS_READ_FILE },
		{ "/etc/nsswitch.conf", LANDLOCK_ACCESS_FS_READ_FILE },
		{ "/etc/host.conf", LANDLOCK_ACCESS_FS_READ_FILE },
		{ "/etc/gai.conf", LANDLOCK_ACCESS_FS_READ_FILE },
		{ "/etc/ld.so.cache", LANDLOCK_ACCESS_FS_READ_FILE },
		{ "/run/systemd/resolve", READ_BELOW },
		{ "/run/NetworkManager", READ_BELOW },
		{ "/run/resolvconf", READ_BELOW },
		{ "/lib", READ_BELOW },
		{ "/usr/lib", READ_BELOW },
		{ "/nix/store", READ_BELOW },
	};

	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		if (access(places[i].path, F_OK) == 0 &&
		    allow_path(ruleset, places[i].path, places[i].access, e) < 0)
			return -1;
	return 0;
}

static int allow_outward(int ruleset, bool tcp, const struct kept *kept, struct err *e)
{
	if (tcp && allow_ports(ruleset, NET_CONNECT_TCP, kept, e) < 0)
		return -1;
	return allow_names(ruleset, e);
}

int confine_outward_files(const uint16_t *ports, size_t n, int *ret_abi, struct err *e)
{
	return enter_domain(&(struct kept){ allow_outward, ports, n }, ret_abi, e);
}
