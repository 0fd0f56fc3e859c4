/*
 * What runsc says of itself, at once and as it was kept; what the kernel says of a process; the
 * record of a runner's processes, in which '@' stands for this process as it would stand there,
 * and '#' for its number; and what a tenant may reach, as the runner's command line has it.  Each
 * input is read as all of them, and as a record when it could be one.
 *
 * The record decides who is killed.  Nobody is: for the runner's lock this program opens
 * processes and sends signals.
 */
#include "fuzz/files.h"
#include "fuzz/fuzz.h"

#include "common/attr.h"
#include "common/buf.h"
#include "common/fd.h"
#include "runner/egress.h"
#include "runner/lock.h"
#include "runner/probe.h"
#include "runner/runsc.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/stat.h>

/* -- runsc ------------------------------------------------------------------------------------ */

static void check_runsc(const char *text)
{
	static const struct runsc_wish wish = { .network = true };
	struct runsc_facts facts = { .version = "" };
	const char *argv[RUNSC_ARGS_MAX];
	struct err e = ERR_INIT;

	if (runsc_read_version(text, &facts, &e) == 0)
		demand(facts.version[0] && memchr(facts.version, '\0', sizeof(facts.version)));
	if (runsc_read_flags(text, &facts, &e) || runsc_decide(&facts, &wish, argv, &e))
		return;
	for (size_t i = 0;; i++) {
		demand(i < RUNSC_ARGS_MAX);
		if (!argv[i])
			break;
	}
}

/* As what it was kept from. */
static bool read_twice(const char *text, struct runsc_facts *ret)
{
	const char *gap = strstr(text, "\n\n");
	struct err e = ERR_INIT;
	char *version;
	bool read;

	if (!gap)
		return false;
	version = text_of(text, (size_t)(gap - text) + 1);
	read = runsc_read_version(version, ret, &e) == 0 && runsc_read_flags(gap + 2, ret, &e) == 0;
	free(version);
	return read;
}

static void check_kept(const char *text)
{
	static const char identity[] = "8:1 5 7.000000000 8.000000000\n";
	struct runsc_facts kept = { "" }, said = { "" };
	auto_buf struct buf file = BUF_INIT((size_t)1 << 20);

	buf_adds(&file, identity);
	buf_adds(&file, text);
	demand(!probe_recall(file.data, "8:1 6 7.000000000 8.000000000\n", &kept));
	demand(probe_recall(file.data, identity, &kept) == read_twice(text, &said));
	demand(!kept.version[0] || memcmp(&kept, &said, sizeof(kept)) == 0);
}

/* -- a process -------------------------------------------------------------------------------- */

/* Field 22, the third being behind the last ')' and a blank. */
static bool find_start(const char *text, unsigned long long *ret)
{
	const char *at = strrchr(text, ')');
	size_t digits;

	for (int blanks = 0; at && *at && blanks < 20; at++)
		blanks += *at == ' ';
	if (!at || at[-1] != ' ')
		return false;
	digits = strspn(at, "0123456789");
	*ret = strtoull(at, NULL, 10);
	return digits && (!at[digits] || strchr(" \n", at[digits]));
}

static void check_start(const char *text)
{
	unsigned long long start = 0, wanted = 0;
	bool found = lock_parse_start(text, &start);

	demand(found == find_start(text, &wanted) && (!found || start == wanted));
}

/* -- a record --------------------------------------------------------------------------------- */

static const struct uuid tenant = { "0191d2b4-0000-7000-8000-000000000001" };
static unsigned int killed;
static char number[32]; /* this process ... */
static char self[64];   /* ... as it would be recorded, without the end of the line */

int pidfd_open(pid_t pid, unsigned int flags)
{
	(void)flags;
	demand(pid > 1);
	return pid == getpid() ? eventfd(0, EFD_CLOEXEC) : -1;
}

/* It ends at once. */
int pidfd_send_signal(int pidfd, int sig, siginfo_t *info, unsigned int flags)
{
	(void)info;
	(void)flags;
	demand(sig == SIGKILL && eventfd_write(pidfd, 1) == 0);
	killed++;
	return 0;
}

static void find_self(void)
{
	auto_close int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	char text[2048];
	unsigned long long start;
	ssize_t n = read(fd, text, sizeof(text) - 1);

	demand(n > 0);
	text[n] = '\0';
	demand(find_start(text, &start));
	(void)snprintf(number, sizeof(number), "%d", getpid());
	(void)snprintf(self, sizeof(self), "%s %llu", number, start);
}

static void put_record(int dir, const char *text, struct buf *ret)
{
	auto_close int fd =
		openat(dir, "processes", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	for (; *text; text++) {
		if (*text == '@' || *text == '#')
			buf_adds(ret, *text == '@' ? self : number);
		else
			buf_addc(ret, *text);
	}
	demand(fd >= 0 && (!ret->len || write(fd, ret->data, ret->len) == (ssize_t)ret->len));
}

static bool has_line(const char *text, const char *line)
{
	size_t len = strlen(line);

	for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
		if (strcspn(text, "\n") == len && strncmp(text, line, len) == 0)
			return true;
	return false;
}

/* It is named somewhere, and the number behind that is the time when it started. */
static bool is_named(const char *text)
{
	unsigned long long start = strtoull(strchr(self, ' ') + 1, NULL, 10);
	size_t len = strlen(number);

	for (const char *at = strstr(text, number); at; at = strstr(at + 1, number))
		if (at[len] == ' ' && strtoull(at + len + 1, NULL, 10) == start)
			return true;
	return false;
}

/* This process is killed when a line is its, and not unless it is named. */
static void check_killed(const struct buf *record, int rc, const struct err *e)
{
	const char *text = record->len ? record->data : "";

	demand((rc < 0) == (record->len > 4096) && (rc == 0 || e->text[0]));
	demand(!killed || is_named(text));
	demand(rc < 0 || killed || !has_line(text, self));
}

/* It costs a hundred times what the others do. */
static bool may_be_record(const char *text)
{
	return strpbrk(text, "@#") || !text[strspn(text, " \n+-0123456789")];
}

static void check_record(const char *text)
{
	static int dir = -1;
	auto_buf struct buf record = BUF_INIT((size_t)8 << 20);
	struct lock l = LOCK_INIT;
	struct err e = ERR_INIT;
	int rc;

	if (dir < 0) {
		char path[128];

		find_self();
		(void)snprintf(path, sizeof(path), "%s/%s", input_dir(), tenant.text);
		demand(mkdir(path, 0700) == 0);
		dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	put_record(dir, text, &record);
	killed = 0;
	rc = lock_take(input_dir(), &tenant, &l, &e);
	check_killed(&record, rc, &e);
	if (rc < 0)
		return;
	/* What the lock records itself, it finds. */
	demand(lock_record(&l, getpid(), &e) == 0);
	fd_close(&l.file);
	fd_close(&l.dir);
	killed = 0;
	demand(lock_take(input_dir(), &tenant, &l, &e) == 0 && killed == 1);
	lock_release(&l);
}

/* -- what may be reached ---------------------------------------------------------------------- */

/* Takes the words off text; false when it does not begin so. */
static bool take(const char **text, const char *words)
{
	size_t len = strlen(words);

	if (strncmp(*text, words, len) != 0)
		return false;
	*text += len;
	return true;
}

static bool take_address(const char **text, uint32_t addr)
{
	const struct in_addr at = { htonl(addr) };
	char words[INET_ADDRSTRLEN];

	demand(inet_ntop(AF_INET, &at, words, sizeof(words)));
	return take(text, words);
}

static bool take_number(const char **text, const char *before, unsigned int n)
{
	char words[32];

	(void)snprintf(words, sizeof(words), "%s%u", before, n);
	return take(text, words);
}

static void check_network(const char **text, const struct prefix *p)
{
	demand(take_address(text, p->addr) && take_number(text, "/", p->len) && p->len <= 32);
	demand(!(p->addr & ((UINT64_C(1) << (32 - p->len)) - 1)));
}

/* Written again, what was taken is what came. */
static void check_row(const char *text, const struct egress_row *row)
{
	check_network(&text, &row->to);
	demand(row->n_ports <= EGRESS_PORTS_MAX);
	for (size_t i = 0; i < row->n_ports; i++) {
		const struct port_span *s = &row->ports[i];

		demand(s->first > 0 && s->first <= s->last);
		demand(take_number(&text, i ? "," : ":", s->first));
		if (*text == '-')
			demand(take_number(&text, "-", s->last));
		else
			demand(s->first == s->last);
	}
	demand(!*text);
}

static void check_resolvers(const char *text, const struct egress *g)
{
	demand(g->n_resolvers >= 1 && g->n_resolvers <= EGRESS_DNS_MAX);
	for (size_t i = 0; i < g->n_resolvers; i++)
		demand((!i || take(&text, ",")) && take_address(&text, g->resolvers[i]));
	demand(!*text);
}

static void check_egress(const char *text)
{
	static struct egress g;
	struct err e = ERR_INIT;
	bool host;

	g.mode = EGRESS_ALLOW;
	g.dns = DNS_OFF;
	g.n_allow = g.n_hosts = g.n_resolvers = 0;
	if (egress_allow(&g, text, &e) == 0)
		check_row(text, &g.allow[0]);
	host = egress_host(&g, text, &e) == 0;
	demand(host == (g.n_allow && !strchr(text, ':')));
	demand(!host || memcmp(&g.hosts[0], &g.allow[0].to, sizeof(g.hosts[0])) == 0);
	if (egress_dns(&g, text, &e) == 0 && g.dns == DNS_LISTED)
		check_resolvers(text, &g);
	demand(egress_settle(&g, &e) == 0);
	if (egress_mode(&g, text, &e) == 0)
		demand(strlen(text) <= 6);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = text_of(data, size);

	check_runsc(text);
	check_kept(text);
	check_start(text);
	if (may_be_record(text))
		check_record(text);
	check_egress(text);
	free(text);
	return 0;
}
