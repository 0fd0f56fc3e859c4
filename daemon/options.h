/*
 * options.h - the command line of cloisterd: one table that is parsed, checked and printed.
 */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include "common/attr.h"
#include "common/err.h"
#include "common/id.h"

#include <stdbool.h>
#include <stdio.h>

enum command {
	COMMAND_NONE, /* in help only: all commands */
	COMMAND_SERVE,
	COMMAND_CHECK,
	COMMAND_DOCTOR,
	COMMAND_RELOAD,
	COMMAND_TENANT,
	COMMAND_STATUS,
	COMMAND_DRAIN,
	COMMAND_TOKEN,
	COMMAND_DATABASE_SCRIPT,
	COMMAND_VERSION,
};

#define OPTION_LIST_MAX 256 /* values of one option that may stand more than once */

struct option_list {
	char *v[OPTION_LIST_MAX];
	size_t n;
};

/* Paths are absolute (relative ones are joined to the working directory) but not canonical. */
struct options {
	enum command command;
	bool help; /* --help was given: print options_help(command); nothing below is set */

	char *tenants; /* serve, doctor and check: the registry; NULL in local mode */
	char *state;   /* NULL only with check */
	bool purge;    /* tenant */
	struct uuid tenant;
	unsigned int json; /* status: 1 = for programs */
	bool new_token;    /* token */
	char *tenant_name; /* token; NULL = nobody's */

	/* serve and doctor; limits in the order of the help */
	char *host; /* literal IPv4 or IPv6 address */
	char *runner;
	char *guest;
	char *rootfs;
	char *runsc;
	char *slirp4netns;
	char *postgres_bin;      /* NULL: an external database; doctor: or none was found */
	char *database_url_file; /* NULL = the managed database */
	struct option_list host_addresses;  /* IPv4 networks */
	struct option_list workspace_roots; /* paths; any = local mode */
	struct option_list cors_origins;
	struct option_list trusted_proxies; /* IPv4 or IPv6 addresses */
	char *token_file;
	char *metrics_token_file; /* NULL = no metrics */
	char *models;
	char *mcp;                 /* also of check; NULL = the built-in one alone */
	unsigned int allow_remote; /* 1 = yes */
	unsigned int allow_http_repositories;
	const char *boundary;    /* "service" or "development" */
	unsigned int port;       /* 0 = any free one */
	unsigned int log_level;  /* enum log_level */
	unsigned int log_format; /* enum log_format */
	unsigned int confine;    /* enum confine_mode */
	unsigned int drain_seconds;
	unsigned int sandbox_idle_seconds;
	unsigned int max_active_sandboxes;
	unsigned int disk_start_mb;
	unsigned int disk_end_mb;
	unsigned int disk_reserve_mb;
	unsigned int max_running_turns;
	unsigned int max_running_turns_per_tenant;
	unsigned int max_queued_turns;
	unsigned int max_queued_turns_per_tenant;
	unsigned int max_queued_bytes;
	unsigned int max_queued_bytes_per_tenant;
	unsigned int max_waiting_turns_per_tenant;
	unsigned int max_turn_bytes;
	unsigned int max_turn_steps;
	unsigned int harness_silence_seconds;
	unsigned int max_event_streams;
	unsigned int max_event_streams_per_tenant;
	unsigned int event_replay_limit;
	unsigned int max_request_bytes;
	unsigned int request_seconds;
	unsigned int max_failed_attempts; /* per minute */
	unsigned int max_db_connections;
	unsigned int max_tenant_database_mb; /* MiB */
};

#define auto_options __attribute__((cleanup(options_release)))

/*
 * Parse argv[1..argc).  On success *ret, which must be zeroed, owns its strings; on
 * failure it is left zeroed and e holds one line for the user (exit status 2).
 */
int options_parse(int argc, char *const argv[], struct options *ret, struct err *e) must_check;

void options_release(struct options *o);

/* --host is 127.0.0.1 or ::1. */
bool options_host_is_local(const struct options *o);

void options_help(enum command topic, FILE *out);

/*
 * The bin directory below root (root/<major>/bin) that holds an executable postgres, of the
 * version that made the database in a state directory: an upgrade of the machine puts a newer
 * one beside it, which cannot read that.  Without one, of the newest.  Owned by the caller.
 */
int options_find_postgres(const char *root, const char *state, char **ret_dir, struct err *e)
	must_check;

#endif
