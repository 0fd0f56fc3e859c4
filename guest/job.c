#include "guest/job.h"

#include "guest/fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const base_env[] = {
	"HOME=/state/home", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"USER=root",        "LOGNAME=root",
	"TMPDIR=/tmp",      "LANG=C.UTF-8",
	"TERM=dumb",
};

enum {
	F_OP,
	F_ARGV,
	F_SHELL,
	F_CWD,
	F_ENV,
	F_TIMEOUT,
	F_KEEP,
	F_BACKGROUND,
	F_COUNT
};

static const struct json_field exec_fields[F_COUNT] = {
	[F_OP] = { .name = "op", .type = JSON_STRING, .required = true },
	[F_ARGV] = { .name = "argv", .type = JSON_ARRAY },
	[F_SHELL] = { .name = "shell", .type = JSON_STRING },
	[F_CWD] = { .name = "cwd", .type = JSON_STRING, .required = true },
	[F_ENV] = { .name = "env", .type = JSON_OBJECT },
	[F_TIMEOUT] = { .name = "timeoutMs", .type = JSON_INT },
	[F_KEEP] = { .name = "keep", .type = JSON_INT },
	[F_BACKGROUND] = { .name = "background", .type = JSON_BOOL },
};

static void check_argv(const struct json *argv, struct json_faults *f)
{
	size_t n = json_len(argv);
	char path[64];

	if (n < 1 || n > JOB_ARGS_MAX)
		json_fault(f, "argv", "1 to %d strings, not %zu", JOB_ARGS_MAX, n);
	for (size_t i = 0; i < n; i++) {
		json_path_index(path, sizeof(path), "argv", i);
		if (json_type(json_at(argv, i)) != JSON_STRING)
			json_fault(f, path, "must be a string");
	}
	if (n > 0 && json_type(json_at(argv, 0)) == JSON_STRING && !json_str_len(json_at(argv, 0)))
		json_fault(f, "argv[0]", "must not be empty");
}

struct env_check {
	struct json_faults *faults;
	size_t n;
};

static void check_variable(void *ctx, const char *key, const struct json *value)
{
	struct env_check *check = ctx;
	struct json_faults *f = check->faults;

	check->n++;
	if (!*key || strchr(key, '='))
		json_fault(f, "env", "\"%s\" cannot name a variable", key);
	if (json_type(value) != JSON_STRING)
		json_fault(f, "env", "%s must be a string", key);
}

static void check_fields(const struct json *const *v, struct json_faults *f)
{
	struct env_check env = { .faults = f };
	size_t cwd_len = json_str_len(v[F_CWD]);

	if (!v[F_ARGV] == !v[F_SHELL])
		json_fault(f, "argv", "exactly one of argv and shell is needed");
	if (v[F_ARGV])
		check_argv(v[F_ARGV], f);
	if (json_str(v[F_CWD])[0] != '/' || cwd_len > JOB_PATH_MAX)
		json_fault(f, "cwd", "must be an absolute path of at most %d bytes", JOB_PATH_MAX);
	if (v[F_ENV])
		json_each(v[F_ENV], check_variable, &env);
	if (env.n > JOB_ENV_MAX)
		json_fault(f, "env", "at most %d variables", JOB_ENV_MAX);
	if (v[F_TIMEOUT] && (json_int(v[F_TIMEOUT]) < 1 || json_int(v[F_TIMEOUT]) > JOB_TIME_MAX))
		json_fault(f, "timeoutMs", "must be from 1 to %d", JOB_TIME_MAX);
	if (v[F_KEEP] && json_int(v[F_KEEP]) < 0)
		json_fault(f, "keep", "must not be negative");
}

static void add_string(struct buf *flat, const char *text)
{
	buf_add(flat, text, strlen(text) + 1);
}

static void add_args(struct buf *flat, const struct json *const *v)
{
	if (v[F_SHELL]) {
		add_string(flat, access(JOB_BEST_SHELL, X_OK) == 0 ? JOB_BEST_SHELL : JOB_SHELL);
		add_string(flat, "-c");
		add_string(flat, json_str(v[F_SHELL]));
	}
	for (size_t i = 0; v[F_ARGV] && i < json_len(v[F_ARGV]); i++)
		add_string(flat, json_str(json_at(v[F_ARGV], i)));
}

struct env_builder {
	struct buf *flat;
	uint32_t n;
};

static void add_variable(void *ctx, const char *key, const struct json *value)
{
	struct env_builder *b = ctx;

	buf_adds(b->flat, key);
	buf_addc(b->flat, '=');
	add_string(b->flat, json_str(value));
	b->n++;
}

static bool is_overridden(const struct json *env, const char *variable)
{
	char name[32];
	size_t len = strcspn(variable, "=");

	if (!env || len >= sizeof(name))
		return false;
	memcpy(name, variable, len);
	name[len] = '\0';
	return json_get(env, name) != NULL;
}

static uint32_t add_env(struct buf *flat, const struct json *env)
{
	struct env_builder b = { .flat = flat };

	for (size_t i = 0; i < ARRAY_LEN(base_env); i++) {
		if (is_overridden(env, base_env[i]))
			continue;
		add_string(flat, base_env[i]);
		b.n++;
	}
	if (env)
		json_each(env, add_variable, &b);
	return b.n;
}

static void read_options(const struct json *const *v, struct job_options *ret)
{
	const struct json *name = v[F_SHELL] ? v[F_SHELL] : json_at(v[F_ARGV], 0);

	*ret = (struct job_options){ .keeps = v[F_KEEP] != NULL };
	ret->timeout_ms = v[F_TIMEOUT] ? (uint64_t)json_int(v[F_TIMEOUT]) : 0;
	ret->keep = v[F_KEEP] ? (uint64_t)json_int(v[F_KEEP]) : 0;
	ret->background = v[F_BACKGROUND] && json_bool(v[F_BACKGROUND]);
	(void)snprintf(ret->name, sizeof(ret->name), "%s", json_str(name));
}

int job_from_request(const struct json *request, struct buf *flat, struct job_options *ret,
                     struct err *e)
{
	const struct json *v[F_COUNT];
	struct json_faults faults = { .count = 0 };
	uint32_t head[2] = { 0, 0 };

	if (json_fields(request, "", exec_fields, F_COUNT, v, &faults))
		check_fields(v, &faults);
	if (faults.count)
		return err_set(e, FAULT_INVALID, "%s", faults.first.text);
	buf_add(flat, head, sizeof(head));
	add_string(flat, json_str(v[F_CWD]));
	add_args(flat, v);
	head[0] = v[F_SHELL] ? 3 : (uint32_t)json_len(v[F_ARGV]);
	head[1] = add_env(flat, v[F_ENV]);
	if (buf_failed(flat))
		return err_set(e, FAULT_INVALID, "the command is too large");
	memcpy(flat->data, head, sizeof(head));
	read_options(v, ret);
	return 0;
}

/* The string at *at, which then points behind it; NULL at the end. */
static char *next_string(char **at, const char *end)
{
	char *text = *at;

	if (text >= end)
		return NULL;
	*at = text + strlen(text) + 1;
	return text;
}

int job_unfold(char *flat, size_t len, struct job *ret, struct err *e)
{
	char *at = flat + 2 * sizeof(uint32_t), *end = flat + len;
	auto_job struct job job = { .cwd = NULL };
	size_t slots, argc, envc;
	uint32_t head[2];

	if (len < sizeof(head))
		return err_set(e, EINVAL, "a job without a head");
	memcpy(head, flat, sizeof(head));
	argc = head[0];
	envc = head[1];
	if (argc < 1 || argc > JOB_ARGS_MAX || envc > JOB_ENV_MAX + ARRAY_LEN(base_env))
		return err_set(e, EINVAL, "a job with %zu arguments", argc);
	slots = argc + 1 + envc + 1;
	job.vector = calloc(slots, sizeof(*job.vector));
	if (!job.vector)
		return err_set(e, ENOMEM, "no memory for a job");
	job.cwd = next_string(&at, end);
	for (size_t i = 0; i < slots - 1; i++)
		if (i != argc && !(job.vector[i] = next_string(&at, end)))
			return err_set(e, EINVAL, "a job that is cut short");
	job.argv = job.vector;
	job.envp = job.vector + argc + 1;
	*ret = job;
	job.vector = NULL;
	return 0;
}

void job_release(struct job *j)
{
	free(j->vector);
	j->vector = NULL;
}

const char *job_getenv(const struct job *j, const char *name)
{
	size_t len = strlen(name);

	for (char **v = j->envp; *v; v++)
		if (strncmp(*v, name, len) == 0 && (*v)[len] == '=')
			return *v + len + 1;
	return NULL;
}
