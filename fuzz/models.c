/* The file that declares the models: loaded whole, or refused with at least one fault. */
#include "fuzz/files.h"
#include "fuzz/fuzz.h"

#include "daemon/model/models.h"

#include <string.h>

static void count(void *ctx, const char *line)
{
	size_t *faults = ctx;

	demand(line[0] && !strchr(line, '\n'));
	++*faults;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct registry *nobody;
	static char root[] = "/run";
	static char *const roots[] = { root };
	struct models *m = NULL;
	struct err e = ERR_INIT;
	size_t faults = 0;
	int rc;

	if (!nobody)
		demand(registry_local(roots, 1, "/nowhere", NULL, &nobody, &e) == 0);
	rc = models_load(input_file(data, size), nobody, &m, count, &faults, &e);
	demand(rc == 0 ? m && !faults && m->n > 0 : !m && e.text[0]);
	for (size_t i = 0; m && i < m->n; i++)
		demand(models_find(m, m->v[i].id) == &m->v[i]);
	models_free(&m);
	return 0;
}
