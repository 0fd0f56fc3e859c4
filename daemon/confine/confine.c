#include "daemon/confine/confine.h"

#include "common/fd.h"
#include "common/log.h"
#include "common/sanitizer.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE              65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

static int expect_one_thread(struct err *e)
{
	auto_dir DIR *dir = opendir("/proc/self/task");
	const struct dirent *entry;
	int threads = 0;

	if (!dir)
		return err_errno(e, "/proc/self/task");
	while ((entry = readdir(dir)))
		threads += entry->d_name[0] != '.';
	if (threads > 1 + SANITIZER_OWN_THREADS)
		return err_set(e, EBUSY, "%d threads run already and would stay unconfined",
		               threads);
	return 0;
}

static int expect_no_new_privs(struct err *e)
{
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		return err_set(e, EPERM, "no_new_privs is not set");
	return 0;
}

int confine_process(struct err *e)
{
	const struct rlimit none = { 0, 0 };

	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_errno(e, "clear dumpable");
	if (setrlimit(RLIMIT_CORE, &none) < 0)
		return err_errno(e, "forbid core files");
	/* Linux 6.3; the list of calls forbids new executable memory with older ones too. */
	if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) < 0 && errno != EINVAL)
		return err_errno(e, "forbid memory to become executable");
	return 0;
}

/* What common/sanitizer_calls.h and allow_runtime() allow. */
static void warn_of_sanitizer(const char *who)
{
	if (SANITIZED)
		log_warn("%s, sanitizer build, not for use: more system calls are allowed%s, its "
		         "own files and what is below /usr may be read%s",
		         who,
		         SANITIZED_ADDRESSES
		                 ? ", ptrace(2) and a clone(2) that shares its memory too"
		                 : "",
		         SANITIZER_OWN_THREADS ? ", a thread of its own is not confined" : "");
}

static void describe(const struct confine_conf *conf, int abi)
{
	const char *mode = conf->mode == CONFINE_KILL ? "kill" : "enforce";

	if (abi == 0)
		log_warn("confined by seccomp (%s) alone: this kernel has no Landlock, or it is "
		         "not among the security modules of its command line (lsm=)",
		         mode);
	else
		log_info("confined: seccomp (%s), Landlock version %d (files%s%s)", mode, abi,
		         abi >= 4 ? ", TCP" : "", abi >= 6 ? ", signals" : "");
	warn_of_sanitizer("server");
}

int confine_self(const struct confine_conf *conf, struct err *e)
{
	int abi = 0;

	if (expect_one_thread(e) < 0 || expect_no_new_privs(e) < 0 || confine_process(e) < 0 ||
	    confine_files(conf->port, &abi, e) < 0)
		return err_wrap(e, "confine the server");
	if (abi == 0 && conf->need_landlock)
		return err_set(e, ENOTSUP,
		               "confine the server: no Landlock, which --boundary service needs; "
		               "boot a kernel that has it, with landlock in lsm=");
	if (confine_calls(conf->mode, e) < 0)
		return err_wrap(e, "confine the server");
	describe(conf, abi);
	return 0;
}

/* Those that connect out differ in their lists of calls. */
static int confine_outward(const char *who, const uint16_t *ports, size_t n, enum confine_mode mode,
                           int (*calls)(enum confine_mode mode, struct err *e), struct err *e)
{
	int abi = 0;

	if (expect_one_thread(e) < 0 || expect_no_new_privs(e) < 0 || confine_process(e) < 0 ||
	    confine_outward_files(ports, n, &abi, e) < 0 || calls(mode, e) < 0)
		return err_wrap(e, "confine the %s", who);
	log_info("%s confined: seccomp (%s), Landlock version %d", who,
	         mode == CONFINE_KILL ? "kill" : "enforce", abi);
	warn_of_sanitizer(who);
	return 0;
}

int confine_courier(enum confine_mode mode, const uint16_t *ports, size_t n, struct err *e)
{
	return confine_outward("courier", ports, n, mode, confine_courier_calls, e);
}

int confine_link(enum confine_mode mode, uint16_t port, struct err *e)
{
	const uint16_t ports[] = { port, 53 };

	return confine_outward("link", ports, ARRAY_LEN(ports), mode, confine_link_calls, e);
}
