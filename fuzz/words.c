/* What runsc says of itself, and what the kernel says of a process. */
#include "fuzz/fuzz.h"

#include "runner/lock.h"
#include "runner/runsc.h"

#include <string.h>

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = text_of(data, size);
	unsigned long long start;

	check_runsc(text);
	(void)lock_parse_start(text, &start);
	free(text);
	return 0;
}
