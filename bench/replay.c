/*
 * Statements by hand: what a program would do that knew them in advance.
 *
 *   replay SOCKET_DIR
 *
 * Reads rounds from its input and prints for each how many microseconds it took, as JSON.
 * A round is a number of statements on a line, and for each statement
 *
 *   DATABASE ROLE PARAMETERS\n  LENGTH\n SQL \n  and for each parameter LENGTH\n VALUE \n
 *
 * where the length -1 stands for a null.  Everything is read before the clock starts.
 * Statements of one database run on one connection, which stays open, and are prepared there.
 */
#include "bench/net.h"
#include "common/clock.h"

#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>

#define CONNECTIONS 8
#define PARAMETERS  32
#define TEXTS       256

static struct connection {
	char database[64], role[64];
	PGconn *pg;
} connections[CONNECTIONS];

struct statement {
	PGconn *on;
	char name[16]; /* prepared on that connection; "" = it takes no parameters and is sent */
	char *sql;
	int n;
	char *values[PARAMETERS];
};

static PGconn *connect_to(const char *dir, const char *database, const char *role)
{
	const char *const keys[] = { "host", "user", "dbname", "sslmode", "gssencmode", NULL };
	const char *const values[] = { dir, role, database, "disable", "disable", NULL };
	struct connection *c = connections;

	while (c->pg && (strcmp(c->database, database) != 0 || strcmp(c->role, role) != 0))
		if (++c == connections + CONNECTIONS)
			die("more than %d databases", CONNECTIONS);
	if (c->pg)
		return c->pg;
	(void)snprintf(c->database, sizeof(c->database), "%s", database);
	(void)snprintf(c->role, sizeof(c->role), "%s", role);
	c->pg = PQconnectdbParams(keys, values, 0);
	if (PQstatus(c->pg) != CONNECTION_OK)
		die("%s", PQerrorMessage(c->pg));
	return c->pg;
}

static char *read_value(void)
{
	char line[32], *value;
	long len;

	if (!fgets(line, sizeof(line), stdin))
		die("the input ends in a statement");
	len = strtol(line, NULL, 10);
	if (len < 0)
		return NULL;
	value = calloc(1, (size_t)len + 1);
	if (!value || fread(value, 1, (size_t)len, stdin) != (size_t)len || getchar() != '\n')
		die("a value of %ld bytes is not all there", len);
	return value;
}

/* As a program does that knows what it will ask; before the clock starts. */
static void prepare(struct statement *s)
{
	static struct {
		PGconn *on;
		char *sql;
	} known[TEXTS];
	PGresult *result;
	int i = 0;

	while (known[i].sql && (known[i].on != s->on || strcmp(known[i].sql, s->sql) != 0))
		if (++i == TEXTS)
			die("more than %d statements", TEXTS);
	(void)snprintf(s->name, sizeof(s->name), "s%d", i);
	if (known[i].sql)
		return;
	known[i].on = s->on;
	known[i].sql = strdup(s->sql);
	result = PQprepare(s->on, s->name, s->sql, s->n, NULL);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		die("%s: %s", s->sql, PQresultErrorMessage(result));
	PQclear(result);
}

static bool is_frame(const char *sql)
{
	return strcmp(sql, "BEGIN") == 0 || strcmp(sql, "COMMIT") == 0 ||
	       strcmp(sql, "ROLLBACK") == 0;
}

static void read_statement(const char *dir, struct statement *s)
{
	char line[256], *database, *role, *n;

	if (!fgets(line, sizeof(line), stdin))
		die("the input ends in a round");
	database = strtok_r(line, " \n", &n);
	role = strtok_r(NULL, " \n", &n);
	if (!database || !role)
		die("a statement without database or role");
	s->n = (int)strtol(n, NULL, 10);
	if (s->n < 0 || s->n > PARAMETERS)
		die("%d parameters", s->n);
	s->on = connect_to(dir, database, role);
	s->sql = read_value();
	if (!s->sql)
		die("a statement without text");
	for (int i = 0; i < s->n; i++)
		s->values[i] = read_value();
	if (!is_frame(s->sql))
		prepare(s);
}

static void execute(const struct statement *s)
{
	const char *const *values = (const char *const *)s->values;
	PGresult *result = s->name[0] ? PQexecPrepared(s->on, s->name, s->n, values, NULL, NULL, 1)
	                              : PQexec(s->on, s->sql);
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		die("%s: %s", s->sql, PQresultErrorMessage(result));
	PQclear(result);
}

static void release(struct statement *s)
{
	free(s->sql);
	for (int i = 0; i < s->n; i++)
		free(s->values[i]);
}

int main(int argc, char **argv)
{
	struct figures took;
	char line[32];

	if (argc != 2)
		die("usage: replay SOCKET_DIR");
	figures_new(&took, "us", 1);
	while (fgets(line, sizeof(line), stdin)) {
		size_t n = strtoul(line, NULL, 10);
		struct statement *all = calloc(n + 1, sizeof(*all));
		uint64_t begin;

		if (!all)
			die("no memory for %zu statements", n);
		for (size_t i = 0; i < n; i++)
			read_statement(argv[1], &all[i]);
		begin = clock_mono_us();
		for (size_t i = 0; i < n; i++)
			execute(&all[i]);
		figures_add(&took, clock_mono_us() - begin);
		figures_print(&took, 1);
		for (size_t i = 0; i < n; i++)
			release(&all[i]);
		free(all);
	}
	return 0;
}
