#include "daemon/launcher/child.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Whoever sends SIGHUP to a service means its registry, and may send it to all of its processes,
 * at any moment.  So in ours it never has its default action: it is blocked at the fork, ignored
 * before the mask goes, and ignored over exec.
 */
static void reset_signals(void)
{
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		(void)signal(sig, sig == SIGHUP ? SIG_IGN : SIG_DFL);
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

void child_begin(pid_t launcher)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		_exit(127);
	/* A launcher that died before the line above can send no signal any more. */
	if (getppid() != launcher)
		_exit(127);
	(void)setpgid(0, 0);
	reset_signals();
}

int child_code(int wait_status)
{
	if (WIFEXITED(wait_status))
		return WEXITSTATUS(wait_status);
	return 128 + WTERMSIG(wait_status);
}

void child_describe(int wait_status, char ret_text[CHILD_END_SIZE])
{
	if (WIFEXITED(wait_status))
		(void)snprintf(ret_text, CHILD_END_SIZE, "exit status %d",
		               WEXITSTATUS(wait_status));
	else
		(void)snprintf(ret_text, CHILD_END_SIZE, "signal %d (%s)", WTERMSIG(wait_status),
		               strsignal(WTERMSIG(wait_status)));
}
