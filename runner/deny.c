#include "runner/deny.h"

#include "runner/cell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define IP(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (d))

struct range {
	uint32_t addr;
	unsigned int len;
};

static const struct range special[] = {
	{ IP(0, 0, 0, 0), 8 },        { IP(10, 0, 0, 0), 8 },     { IP(100, 64, 0, 0), 10 },
	{ IP(127, 0, 0, 0), 8 },      { IP(169, 254, 0, 0), 16 }, { IP(172, 16, 0, 0), 12 },
	{ IP(192, 0, 0, 0), 24 },     { IP(192, 0, 2, 0), 24 },   { IP(192, 88, 99, 0), 24 },
	{ IP(192, 168, 0, 0), 16 },   { IP(198, 18, 0, 0), 15 },  { IP(198, 51, 100, 0), 24 },
	{ IP(203, 0, 113, 0), 24 },   { IP(224, 0, 0, 0), 4 },    { IP(240, 0, 0, 0), 4 },
	{ IP(168, 63, 129, 16), 32 }, /* a public address that is each Azure machine's own */
};

/* Clouds': link-local ones, and what Alibaba, Azure and Oracle have elsewhere. */
static const struct range metadata[] = {
	{ IP(169, 254, 0, 0), 16 },
	{ IP(100, 100, 100, 200), 32 },
	{ IP(168, 63, 129, 16), 32 },
	{ IP(192, 0, 0, 192), 32 },
};

static const struct range nobody[] = {
	{ IP(0, 0, 0, 0), 8 },   { CELL_SLIRP_ADDR, CELL_SLIRP_PREFIX },
	{ IP(127, 0, 0, 0), 8 }, { CELL_ROUTER_ADDR, CELL_PREFIX },
	{ IP(224, 0, 0, 0), 4 }, { IP(240, 0, 0, 0), 4 },
};

static void init(struct deny *d, const struct range *ranges, size_t n)
{
	struct err e = ERR_INIT;

	d->n = 0;
	for (size_t i = 0; i < n; i++)
		if (deny_add_prefix(d, ranges[i].addr, ranges[i].len, &e) < 0)
			abort(); /* these few always fit */
}

void deny_init_special(struct deny *d)
{
	init(d, special, ARRAY_LEN(special));
}

void deny_init_metadata(struct deny *d)
{
	init(d, metadata, ARRAY_LEN(metadata));
}

void deny_init_nobody(struct deny *d)
{
	init(d, nobody, ARRAY_LEN(nobody));
}

/* True when b starts inside a or right after its end. */
static bool touches(const struct deny_span *a, uint32_t b_first)
{
	return b_first <= a->last || b_first - a->last == 1;
}

int deny_add(struct deny *d, uint32_t first, uint32_t last, struct err *e)
{
	struct deny_span span = { first, last };
	size_t from = 0;
	size_t to;

	while (from < d->n && !touches(&d->spans[from], first))
		from++;
	if (from < d->n && d->spans[from].first <= first && last <= d->spans[from].last)
		return 0;
	for (to = from; to < d->n && touches(&span, d->spans[to].first); to++) {
		if (d->spans[to].first < span.first)
			span.first = d->spans[to].first;
		if (d->spans[to].last > span.last)
			span.last = d->spans[to].last;
	}
	if (to == from && d->n == DENY_MAX)
		return err_set(e, ENOSPC, "more than %d spans of local addresses on this host",
		               DENY_MAX);
	memmove(&d->spans[from + 1], &d->spans[to], (d->n - to) * sizeof(span));
	d->spans[from] = span;
	d->n = d->n - (to - from) + 1;
	return 1;
}

int deny_add_prefix(struct deny *d, uint32_t addr, unsigned int len, struct err *e)
{
	uint32_t host = len == 0 ? UINT32_MAX : (uint32_t)((UINT64_C(1) << (32 - len)) - 1);

	return deny_add(d, addr & ~host, addr | host, e);
}

bool deny_has(const struct deny *d, uint32_t addr)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->spans[i].first <= addr && addr <= d->spans[i].last)
			return true;
	return false;
}
