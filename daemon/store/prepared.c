#include "daemon/store/prepared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is(const struct prepared *p, const char *sql, uint32_t bytes)
{
	return p->bytes == bytes && strcmp(p->sql, sql) == 0;
}

/* Nearly all texts are constants, and found by where they are. */
static struct prepared *find(struct prepared_set *set, const char *sql, uint32_t bytes)
{
	for (size_t i = 0; i < set->n; i++)
		if (set->all[i].from == sql && is(&set->all[i], sql, bytes))
			return &set->all[i];
	for (size_t i = 0; i < set->n; i++)
		if (is(&set->all[i], sql, bytes))
			return &set->all[i];
	return NULL;
}

struct prepared *prepared_use(struct prepared_set *set, const char *sql, uint32_t bytes)
{
	struct prepared *p = find(set, sql, bytes);

	if (p) {
		p->from = sql;
		p->again = true;
		return p;
	}
	if (set->n == PREPARED_MAX)
		return NULL;
	p = &set->all[set->n];
	*p = (struct prepared){ .sql = strdup(sql), .from = sql, .bytes = bytes };
	if (!p->sql)
		return NULL;
	set->n++;
	return p;
}

void prepared_name(const struct prepared_set *set, const struct prepared *p,
                   char ret[PREPARED_NAME_SIZE])
{
	(void)snprintf(ret, PREPARED_NAME_SIZE, "s%zu", (size_t)(p - set->all));
}

void prepared_release(struct prepared_set *set)
{
	for (size_t i = 0; i < set->n; i++)
		free(set->all[i].sql);
	set->n = 0;
}
