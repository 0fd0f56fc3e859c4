#include "daemon/http/budget.h"

#include <stdlib.h>

struct budget_party {
	struct budget_party *next;
	struct uuid id;
	size_t used;
};

/* Where the pointer to the party stands, or would stand. */
static struct budget_party **find(struct budget *b, const struct uuid *id)
{
	struct budget_party **at = &b->parties;

	while (*at && !uuid_equal(&(*at)->id, id))
		at = &(*at)->next;
	return at;
}

static size_t share(const struct budget *b, const struct uuid *party)
{
	return *party->text ? b->share : b->nobody;
}

static struct budget_party *add_party(struct budget *b, const struct uuid *id)
{
	struct budget_party *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->id = *id;
	p->next = b->parties;
	b->parties = p;
	return p;
}

bool budget_take(struct budget *b, const struct uuid *party, size_t n)
{
	struct budget_party *p = *find(b, party);
	size_t has = p ? p->used : 0;

	if (n > share(b, party) - has || n > b->max - b->used)
		return false;
	if (!n)
		return true;
	if (!p)
		p = add_party(b, party);
	if (!p)
		return false;
	p->used += n;
	b->used += n;
	return true;
}

void budget_give(struct budget *b, const struct uuid *party, size_t n)
{
	struct budget_party **at = find(b, party), *p = *at;

	if (!p || !n)
		return;
	b->used -= n;
	p->used -= n;
	if (p->used)
		return;
	*at = p->next;
	free(p);
}
