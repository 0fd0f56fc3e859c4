/*
 * What the guest reads of the processes of its own sandbox: their children and their states, in
 * a /proc that is the input's.  Which of them are counted, stopped and killed is what a second
 * reader finds, and each is stopped before its children are asked for: only then has it any.
 * Nobody is killed: for the reader this program sends signals and waits.
 *
 * The first byte says whether there is a leader, and whether time is up.  Then come rows: a byte
 * of process (0 = the guest, else one more than its pid) and thread (15 = the state of the
 * process), two bytes of length, and a text.
 */
#include "fuzz/fuzz.h"
#include "fuzz/root.h"

#include "common/fd.h"
#include "guest/tree.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define PROCESSES 16
#define THREADS   15
#define STATE     15  /* in the place of a thread */
#define NO_THREAD 14  /* something else that lies among them */
#define FOUND_MAX 400 /* no process of the kernel's is its own child's child */
#define LEADER    77

enum {
	HAS_LEADER = 1,
	IS_LATE = 2,
};

struct text {
	const uint8_t *at;
	size_t len;
};

static struct text texts[PROCESSES][STATE + 1];

struct pids {
	int v[FOUND_MAX];
	size_t n;
	bool full;
};

/* -- what is there ---------------------------------------------------------------------------- */

static int pid_of(size_t process)
{
	return process ? (int)process + 1 : getpid();
}

static void put_path(char ret[64], size_t process, size_t thread)
{
	if (thread == STATE)
		(void)snprintf(ret, 64, "/proc/%d/stat", pid_of(process));
	else
		(void)snprintf(ret, 64, "/proc/%d/task/%s%zu/children", pid_of(process),
		               thread == NO_THREAD ? "x" : "", thread + 1);
}

static void make_above(const char *path)
{
	char dir[64];

	(void)snprintf(dir, sizeof(dir), "%s", path);
	for (char *slash = strchr(dir + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(dir, 0755);
		*slash = '/';
	}
}

static void put_text(size_t process, size_t thread, bool whole)
{
	const struct text *t = &texts[process][thread];
	auto_close int fd = -1;
	char path[64];

	if (!t->at)
		return;
	put_path(path, process, thread);
	make_above(path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	demand(fd >= 0 && (!whole || write(fd, t->at, t->len) == (ssize_t)t->len));
}

static void put_children(size_t process, bool whole)
{
	for (size_t thread = 0; thread < THREADS; thread++)
		put_text(process, thread, whole);
}

static void remove_text(size_t process, size_t thread)
{
	char path[64];

	if (!texts[process][thread].at)
		return;
	put_path(path, process, thread);
	demand(unlink(path) == 0);
	while (strcmp(path, "/proc") != 0) {
		*strrchr(path, '/') = '\0';
		if (rmdir(path) < 0)
			break; /* there is more in it */
	}
}

static void cut_rows(const uint8_t *data, size_t size)
{
	memset(texts, 0, sizeof(texts));
	while (size >= 3) {
		size_t len = (size_t)data[1] << 8 | data[2];
		struct text *t = &texts[data[0] >> 4][data[0] & 15];

		data += 3;
		size -= 3;
		len = len < size ? len : size;
		*t = (struct text){ data, len };
		data += len;
		size -= len;
	}
}

/* -- the second reader ------------------------------------------------------------------------ */

/* Numbers that something follows, of which 0 and 1 are nobody's child. */
static void find_children(const struct text *t, struct pids *ret)
{
	char *text = text_of(t->at, t->len), *at = text, *end = text + t->len;

	while (at < end) {
		size_t digits = strspn(at, "0123456789");
		unsigned long long pid = strtoull(at, NULL, 10);

		if (digits && at + digits < end && pid > 1 && pid <= INT_MAX) {
			ret->full |= ret->n == FOUND_MAX;
			if (!ret->full)
				ret->v[ret->n++] = (int)pid;
		}
		at += digits ? digits : 1;
	}
	free(text);
}

static void find_all(size_t process, struct pids *ret)
{
	struct pids *own = (struct pids *)(void *)room_for(sizeof(*own));

	own->n = 0;
	own->full = ret->full;
	for (size_t thread = 0; thread < NO_THREAD; thread++)
		if (texts[process][thread].at)
			find_children(&texts[process][thread], own);
	ret->full = own->full;
	for (size_t i = 0; i < own->n && !ret->full; i++) {
		ret->full |= ret->n == FOUND_MAX;
		if (ret->full)
			break;
		ret->v[ret->n++] = own->v[i];
		if (own->v[i] <= PROCESSES)
			find_all((size_t)own->v[i] - 1, ret);
	}
	free(own);
}

/* "N (NAME) S ...", of which the first 511 bytes count, and no byte behind a NUL. */
static bool lives(int pid)
{
	const struct text *t = pid <= PROCESSES ? &texts[pid - 1][STATE] : NULL;
	size_t len = t && t->at ? strnlen((const char *)t->at, t->len < 511 ? t->len : 511) : 0;

	for (size_t i = len; i-- > 0;)
		if (t->at[i] == ')')
			return i + 2 < len && t->at[i + 2] != 'Z' && t->at[i + 2] != 'X';
	return false;
}

static int compare(const void *a, const void *b)
{
	const int *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* In any order. */
static bool is_same(struct pids *a, struct pids *b)
{
	qsort(a->v, a->n, sizeof(a->v[0]), compare);
	qsort(b->v, b->n, sizeof(b->v[0]), compare);
	return a->n == b->n && memcmp(a->v, b->v, a->n * sizeof(a->v[0])) == 0;
}

/* -- signals and ends ------------------------------------------------------------------------- */

static struct pids stopped, killed, wanted;
static bool led; /* the leader's group has been killed */
static unsigned int waits;

static void add(struct pids *to, int pid)
{
	demand(to->n < FOUND_MAX);
	to->v[to->n++] = pid;
}

int kill(pid_t pid, int sig)
{
	demand(pid > 1 || (pid == -LEADER && sig == SIGKILL && !led && !stopped.n));
	demand(sig == SIGSTOP || sig == SIGKILL);
	if (pid < 0) {
		led = true;
		return 0;
	}
	demand(sig == SIGKILL || !killed.n);
	add(sig == SIGSTOP ? &stopped : &killed, pid);
	if (sig == SIGSTOP && pid <= PROCESSES)
		put_children((size_t)pid - 1, true);
	return 0;
}

/* Once the leader, when all have been killed; then there is no child any more. */
pid_t waitpid(pid_t pid, int *stat_loc, int options)
{
	demand(pid == -1 && options == WNOHANG && waits < 8);
	waits++;
	if (waits > 1 && killed.n == wanted.n)
		return -1;
	if (waits > 1 || !led)
		return 0;
	*stat_loc = SIGKILL;
	return waits == 1 ? LEADER : 0;
}

int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout)
{
	demand(sigismember(set, SIGCHLD) && !info && timeout->tv_nsec < 1000000000);
	return -1;
}

/* -- an input --------------------------------------------------------------------------------- */

static void check_count(void)
{
	size_t alive = 0;

	for (size_t i = 0; i < wanted.n; i++)
		alive += lives(wanted.v[i]);
	demand(tree_count() == alive && !stopped.n && !killed.n);
}

static void check_kill(uint8_t how)
{
	int status = -1;
	bool has_leader = how & HAS_LEADER, late = how & IS_LATE, gone;

	for (size_t process = 1; process < PROCESSES; process++)
		put_children(process, false);
	led = false;
	waits = 0;
	gone = tree_kill(has_leader ? LEADER : 0, &status, late ? 0 : UINT64_MAX);
	demand(led == has_leader && status == (has_leader ? SIGKILL : -1));
	demand(gone == !late || !wanted.n);
	if (late && !gone) {
		demand(!stopped.n && !killed.n);
		return;
	}
	demand(stopped.n == killed.n);
	demand(memcmp(stopped.v, killed.v, killed.n * sizeof(killed.v[0])) == 0);
	demand(is_same(&killed, &wanted));
}

static void run(const uint8_t *data, size_t size)
{
	int free_fd = lowest_fd();

	cut_rows(data + 1, size - 1);
	stopped.n = killed.n = wanted.n = 0;
	wanted.full = false;
	find_all(0, &wanted);
	if (wanted.full)
		return;
	for (size_t process = 0; process < PROCESSES; process++) {
		put_children(process, true);
		put_text(process, STATE, true);
	}
	check_count();
	check_kill(data[0]);
	for (size_t process = 0; process < PROCESSES; process++)
		for (size_t thread = 0; thread <= STATE; thread++)
			remove_text(process, thread);
	demand(lowest_fd() == free_fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size && size <= 65536)
		in_own_root(run, data, size);
	return 0;
}
