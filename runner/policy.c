/*
 * The kernel's set of addresses and ports takes ranges, but none that overlap.  So
 * the entries are cut at every address where one of them begins or ends; between two
 * cuts the same entries hold throughout, and the union of their ports is the answer.
 */
#include "runner/policy.h"

#include "common/fd.h"
#include "runner/cell.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

/* No bound of this is reached by EGRESS_ALLOW_MAX entries. */
struct cuts {
	uint64_t at[2 * EGRESS_ALLOW_MAX];
	size_t n;
	struct port_span ports[EGRESS_ALLOW_MAX * EGRESS_PORTS_MAX]; /* of one stretch */
	size_t n_ports;
};

static uint64_t first_of(const struct prefix *x)
{
	return x->addr;
}

static uint64_t end_of(const struct prefix *x)
{
	return x->addr + (UINT64_C(1) << (32 - x->len));
}

static int order_cuts(const void *a, const void *b)
{
	const uint64_t *x = a;
	const uint64_t *y = b;

	return (*x > *y) - (*x < *y);
}

static int order_ports(const void *a, const void *b)
{
	const struct port_span *x = a;
	const struct port_span *y = b;

	return (x->first > y->first) - (x->first < y->first);
}

static void find_cuts(struct cuts *c, const struct egress *g)
{
	for (size_t i = 0; i < g->n_allow; i++) {
		if (g->allow[i].n_ports == 0)
			continue;
		c->at[c->n++] = first_of(&g->allow[i].to);
		c->at[c->n++] = end_of(&g->allow[i].to);
	}
	qsort(c->at, c->n, sizeof(c->at[0]), order_cuts);
}

/* The ports that hold at an address, ascending and apart. */
static void find_ports(struct cuts *c, const struct egress *g, uint64_t addr)
{
	size_t n = 0;
	size_t merged = 0;

	for (size_t i = 0; i < g->n_allow; i++) {
		const struct egress_row *row = &g->allow[i];

		if (first_of(&row->to) > addr || addr >= end_of(&row->to))
			continue;
		for (size_t k = 0; k < row->n_ports; k++)
			c->ports[n++] = row->ports[k];
	}
	qsort(c->ports, n, sizeof(c->ports[0]), order_ports);
	for (size_t i = 0; i < n; i++) {
		struct port_span *last = merged > 0 ? &c->ports[merged - 1] : NULL;

		if (!last || c->ports[i].first > (uint32_t)last->last + 1)
			c->ports[merged++] = c->ports[i];
		else if (c->ports[i].last > last->last)
			last->last = c->ports[i].last;
	}
	c->n_ports = merged;
}

static int add_cells(struct policy *p, const struct cuts *c, uint64_t first, uint64_t end,
                     struct err *e)
{
	for (size_t i = 0; i < c->n_ports; i++) {
		if (p->n_cells == POLICY_CELLS_MAX)
			return err_set(e, EINVAL,
			               "--egress-allow: the entries come to more than %d pairs of "
			               "a network and a range of ports; merge some",
			               POLICY_CELLS_MAX);
		p->cells[p->n_cells++] =
			(struct policy_cell){ .addrs = { (uint32_t)first, (uint32_t)(end - 1) },
			                      .ports = c->ports[i] };
	}
	return 0;
}

static int cut_cells(struct policy *p, const struct egress *g, struct err *e)
{
	auto_free struct cuts *c = calloc(1, sizeof(*c));

	if (!c)
		return err_set(e, ENOMEM, "no memory for the allowed networks");
	find_cuts(c, g);
	for (size_t i = 0; i + 1 < c->n; i++) {
		if (c->at[i] == c->at[i + 1])
			continue;
		find_ports(c, g, c->at[i]);
		if (add_cells(p, c, c->at[i], c->at[i + 1], e) < 0)
			return -1;
	}
	return 0;
}

static int add_prefix(struct deny *d, const struct prefix *x, struct err *e)
{
	return deny_add_prefix(d, x->addr, x->len, e) < 0 ? -1 : 0;
}

int policy_init(struct policy *p, const struct egress *g, struct err *e)
{
	*p = (struct policy){ .mode = g->mode, .dns = g->dns, .n_resolvers = g->n_resolvers };
	for (size_t i = 0; i < g->n_resolvers; i++)
		p->resolvers[i] = g->resolvers[i];
	deny_init_nobody(&p->local);
	if (g->mode == EGRESS_PUBLIC)
		deny_init_special(&p->denied);
	else
		deny_init_metadata(&p->denied);
	for (size_t i = 0; i < g->n_hosts; i++)
		if (add_prefix(&p->local, &g->hosts[i], e) < 0)
			return err_wrap(e, "--host-address");
	for (size_t i = 0; i < g->n_allow; i++)
		if (g->allow[i].n_ports == 0 && add_prefix(&p->allowed, &g->allow[i].to, e) < 0)
			return err_wrap(e, "--egress-allow");
	return cut_cells(p, g, e);
}

int policy_check(const struct policy *p, struct err *e)
{
	for (size_t i = 0; i < p->n_resolvers; i++) {
		struct in_addr addr = { htonl(p->resolvers[i]) };
		char text[INET_ADDRSTRLEN];

		if (!deny_has(&p->local, p->resolvers[i]))
			continue;
		return err_set(e, EINVAL,
		               "--dns: %s is an address of this host; choose the resolver of the "
		               "host by the word host",
		               inet_ntop(AF_INET, &addr, text, sizeof(text)));
	}
	return 0;
}
