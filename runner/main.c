/*
 * cloister-runner: the small trusted launcher of one tenant's gVisor sandbox.
 *
 * Started by the launcher as the service user, with the tenant's two pipes as
 * standard input and output.  It never reads or writes them: it hands them to the
 * sandbox's first process.  Its first act is to give up every way to more power;
 * then it reads its arguments into a plan, checks itself, and only then acts.
 */
#include "common/log.h"
#include "common/sanitizer.h"
#include "runner/probe.h"
#include "runner/runner.h"
#include "runner/self.h"
#include "runner/trust.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The last line on standard error is the reason and nothing else. */
static int refuse(struct err *e, int code)
{
	for (char *p = e->text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	(void)fprintf(stderr, "%s\n", e->text);
	return code;
}

/* What the service boundary asks for beyond what every runner does. */
static int check_service(const struct runner_args *args, struct err *e)
{
	if (self_check_landlock(e) < 0 || trust_check_self(e) < 0 ||
	    trust_check(args->runsc, e) < 0 || trust_check(args->slirp4netns, e) < 0 ||
	    trust_check(args->guest, e) < 0)
		return -1;
	return trust_check(args->rootfs, e);
}

static int check(int argc, char *const *argv, struct runner_args *args, struct err *e)
{
	if (args_parse(argc, argv, args, e) < 0)
		return -1;
	if (self_check(e) < 0 || self_check_pipes(e) < 0)
		return -1;
	return args->boundary == BOUNDARY_SERVICE ? check_service(args, e) : 0;
}

static int serve(const struct runner_args *args)
{
	struct runner r;
	struct err e = ERR_INIT;
	int code = EXIT_REFUSED;

	runner_init(&r, args);
	if (runner_start(&r, &e) == 0) {
		log_info("sandbox of tenant %s handed to runsc", args->tenant.text);
		code = runner_serve(&r, &e);
	} else {
		output_read(&r.log);
		output_read(&r.slirp_output);
		output_log_tail(&r.log);
		output_log_tail(&r.slirp_output);
	}
	runner_end(&r);
	sanitizer_fault("runner");
	return code == EXIT_ORDERLY ? EXIT_ORDERLY : refuse(&e, code);
}

int main(int argc, char **argv)
{
	struct runner_args args;
	struct err e = ERR_INIT;

	if (self_lower(&e) < 0)
		return refuse(&e, EXIT_REFUSED);
	log_setup("cloister-runner", LOG_INFO);
	if (argc == 2 && strcmp(argv[1], "--help") == 0) {
		args_help();
		return 0;
	}
	if (argc >= 2 && strcmp(argv[1], "probe") == 0) {
		int code = probe_main(argc, argv, &e);

		return code == EXIT_ORDERLY ? code : refuse(&e, code);
	}
	if (check(argc, argv, &args, &e) < 0)
		return refuse(&e, EXIT_REFUSED);
	return serve(&args);
}
