/*
 * What a set-up runs inside the sandbox, and how the credential gets to git.
 *
 * Only one step has it: the one that fetches.  It comes on standard input, which is made
 * descriptor 3 of git; git asks a helper that is given on its command line, and that copies
 * descriptor 3.  So it stands in no file, environment or command line, and what is in the
 * pipe is gone when it was read.  Nothing of the repository runs in that step: there is no
 * checkout, no template and no hook, no configuration but what is given here, and no
 * redirect is followed, which could lead to somebody else who asks.  The step is alone in
 * a sandbox of its own: it is started anew for it when anything has run there, so that
 * nothing that a command or a harness left behind can look on, and no other call runs
 * meanwhile.
 *
 * Everything is made in a directory beside the target and moved there at the end, so a step
 * that was interrupted is done again from the beginning.
 */
#include "daemon/setup/job.h"
#include "daemon/setup/said.h"

#include "common/log.h"

#include <stdio.h>
#include <string.h>

#define SECOND     1000UL
#define PATH_SPACE (SESSION_CWD_MAX + 64)

_Static_assert(TOLD_MAX <= SETUP_ERROR_MAX &&
                       sizeof(((struct err *)0)->text) <= SETUP_ERROR_MAX + 1,
               "what fail() is given is never cut");

#define EXIT_IN_THE_WAY 21
#define EXIT_NO_REF     22

/* $1 target, $2 place beside it, $3 session, $4 URL, $5 ref, $6 branch, $7 transport */
#define PRELUDE                                                                                   \
	"set -eu\n"                                                                               \
	"for name in $(env | sed -n 's/^\\(GIT_[A-Z_0-9]*\\)=.*/\\1/p'); do unset $name; done\n"  \
	"export HOME=/ LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null\n"              \
	"export GIT_TERMINAL_PROMPT=0 GIT_ALLOW_PROTOCOL=$7\n"                                    \
	"git() { command git -c core.hooksPath=/dev/null -c gc.auto=0 -c maintenance.auto=false " \
	"-c core.askPass= -c credential.helper= \"$@\"; }\n"

static const char prepare[] = PRELUDE
	"if [ \"$(git -C \"$1\" config --local --get cloister.session 2>/dev/null || :)\" = "
	"\"$3\" ]; then git -C \"$1\" rev-parse HEAD; exit 0; fi\n"
	"rm -rf -- \"$2\"\n"
	"mkdir -p -- \"${1%/*}\"\n"
	"[ ! -e \"$1\" ] || [ -d \"$1\" -a -z \"$(ls -A -- \"$1\")\" ] || exit 21\n";

static const char clone[] =
	PRELUDE "exec </dev/null\n"
		"git clone -q --no-checkout --template= -o origin -- \"$4\" \"$2\"\n";

static const char clone_private[] =
	PRELUDE "exec 3<&0 </dev/null\n"
		"git -c http.followRedirects=false "
		"-c credential.helper='!f() { [ \"$1\" != get ] || cat <&3; }; f' "
		"clone -q --no-checkout --template= -o origin -- \"$4\" \"$2\"\n";

static const char check_out[] = PRELUDE
	"cd -- \"$2\"\n"
	"commit=\n"
	"for name in \"refs/remotes/origin/${5:-HEAD}\" \"refs/tags/$5\" \"$5\"; do\n"
	"  commit=$(git rev-parse --verify -q --end-of-options \"$name^{commit}\") && break\n"
	"done || exit 22\n"
	"[ \"$commit\" ] || exit 22\n"
	"if [ \"$6\" ]; then git checkout -q --no-track -B \"$6\" \"$commit\"\n"
	"else\n"
	"  tracked=$(git symbolic-ref -q --short refs/remotes/origin/HEAD) || tracked=\n"
	"  [ -z \"$5\" ] || tracked=origin/$5\n"
	"  if git show-ref -q --verify \"refs/remotes/$tracked\"\n"
	"  then git checkout -q -B \"${tracked#origin/}\" --track \"$tracked\"\n"
	"  else git checkout -q --detach \"$commit\"; fi\n"
	"fi\n"
	"git config cloister.session \"$3\"\n"
	"cd /\n"
	"mv -T -- \"$2\" \"$1\" || exit 21\n"
	"echo \"$commit\"\n";

struct step {
	const char *name;
	const char *script;
	uint64_t timeout_ms;
	const char *failed; /* code of any other failure */
	const char *input;  /* NULL = none; then it is not alone */
};

static void fail(struct setup *end, const char *code, const char *text)
{
	end->state = SETUP_FAILED;
	(void)snprintf(end->code, sizeof(end->code), "%s", code);
	(void)snprintf(end->error, sizeof(end->error), "%s", text);
}

/* One line of what git complained about. */
static void fail_saying(struct setup *end, const struct step *step, struct said *said)
{
	char text[TOLD_MAX + 1];

	said_complaint(said, step->input, text);
	fail(end, step->failed, *text ? text : "git failed and did not say why");
}

/* -- running ------------------------------------------------------------------------------- */

static void fail_start(const struct setup_job *job, struct setup *end, const struct err *e)
{
	if (e->code == SANDBOX_BUSY || e->code == SANDBOX_LIMIT) {
		fail(end, "sandbox_busy", e->text);
		return;
	}
	/* The text may speak of the host. */
	log_warn("set-up of session %s: %s", job->session.text, e->text);
	fail(end, "sandbox_unavailable",
	     "the sandbox did not start or did not take the command; the operator's log names the "
	     "cause beside this session's id");
}

static bool judge(const struct step *step, const struct exec_result *r, struct said *said,
                  struct setup *end)
{
	if (r->reason == EXEC_EXITED && r->code == 0)
		return true;
	if (r->reason == EXEC_TIMEOUT)
		fail(end, "setup_timeout", "it took too long");
	else if (r->reason != EXEC_EXITED)
		fail(end, "sandbox_lost", "the sandbox ended, or the command was cancelled");
	else if (r->code == EXIT_IN_THE_WAY)
		fail(end, "directory_not_empty", "the session's directory is not empty");
	else if (r->code == EXIT_NO_REF)
		fail(end, "ref_not_found", "the repository has no such branch, tag or commit");
	else
		fail_saying(end, step, said);
	return false;
}

/* True when it succeeded; a commit that it names is in end->head. */
static bool run(struct setup_job *job, const struct step *step, const char *const *words,
                struct setup *end)
{
	const struct sandbox_use use = { setup_job_sandboxes(job), &job->tenant, &job->cancel,
		                         step->input != NULL };
	const char *argv[12] = { "/bin/sh", "-c", step->script, "setup" };
	const struct exec_spec spec = { .argv = argv,
		                        .cwd = "/",
		                        .timeout_ms = step->timeout_ms,
		                        .input = step->input,
		                        .input_len = step->input ? strlen(step->input) : 0 };
	struct said said = SAID_INIT;
	const struct output_sink sink = { said_take, &said };
	struct exec_result result;
	struct err e = ERR_INIT;
	bool ok = false;

	for (size_t i = 0; words[i]; i++)
		argv[4 + i] = words[i];
	if (sandbox_exec(&use, &spec, &sink, &result, &e))
		fail_start(job, end, &e);
	else
		ok = judge(step, &result, &said, end);
	if (ok && said.out.len >= 40)
		(void)snprintf(end->head, sizeof(end->head), "%.*s",
		               (int)strspn(said.out.data, "0123456789abcdef"), said.out.data);
	said_release(&said);
	return ok;
}

static void tell_step(const struct setup_job *job, const char *name)
{
	struct json *data = json_new_object();

	json_put_str(data, "step", name);
	setup_job_tell(job, "session.setup.step", data);
}

void steps_run(struct setup_job *job, const struct session *session, struct setup *end)
{
	const struct step steps[] = {
		{ "prepare", prepare, 300 * SECOND, "prepare_failed", NULL },
		{ "clone", job->secret ? clone_private : clone, 1800 * SECOND, "clone_failed",
		  job->secret },
		{ "checkout", check_out, 900 * SECOND, "checkout_failed", NULL },
	};
	const struct setup *setup = &session->setup;
	const char *slash = strrchr(session->cwd, '/');
	char beside[PATH_SPACE];
	const char *const words[] = { session->cwd,
		                      beside,
		                      session->id.text,
		                      setup->url,
		                      setup->ref,
		                      setup->branch,
		                      strncmp(setup->url, "http:", 5) == 0 ? "http" : "https",
		                      NULL };

	(void)snprintf(beside, sizeof(beside), "%.*s/.setup-%s", (int)(slash - session->cwd),
	               session->cwd, session->id.text);
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		tell_step(job, steps[i].name);
		if (!run(job, &steps[i], words, end))
			return;
		if (end->head[0]) {
			end->state = SETUP_READY;
			return;
		}
	}
	fail(end, "checkout_failed", "git did not say which commit it checked out");
}
