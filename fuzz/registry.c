/* The file that declares the tenants: loaded whole, or refused with at least one fault. */
#include "fuzz/files.h"
#include "fuzz/fuzz.h"

#include "daemon/tenant/registry.h"

#include <string.h>

static void count(void *ctx, const char *line)
{
	size_t *faults = ctx;

	demand(line[0] && !strchr(line, '\n'));
	++*faults;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct registry *r = NULL;
	struct err e = ERR_INIT;
	size_t faults = 0;
	int rc = registry_load(input_file(data, size), "/nowhere", &r, count, &faults, &e);

	demand(rc == 0 ? r && !faults && registry_count(r) > 0 : !r && e.text[0]);
	registry_free(&r);
	return 0;
}
