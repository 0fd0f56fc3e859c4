/* Announcements of routes by the kernel: what is local to the host, and nothing outside. */
#include "fuzz/fuzz.h"

#include "runner/local.h"

#include <linux/netlink.h>
#include <string.h>

static void demand_sorted(const struct deny *d)
{
	demand(d->n <= DENY_MAX);
	for (size_t i = 0; i < d->n; i++) {
		demand(d->spans[i].first <= d->spans[i].last);
		demand(i == 0 || (uint64_t)d->spans[i - 1].last + 1 < d->spans[i].first);
	}
}

/* As the kernel hands them over: aligned, and no longer than the buffer. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct deny d = { .n = 0 };
	struct nlmsghdr *copy;
	struct err e = ERR_INIT;
	size_t was;
	int rc;

	if (size < sizeof(*copy))
		return 0;
	copy = (struct nlmsghdr *)room_for(size);
	memcpy(copy, data, size);
	copy->nlmsg_len = (uint32_t)size;
	was = d.n;
	rc = local_parse(copy, &d, &e);
	demand_sorted(&d);
	demand(rc == 1 || d.n == was);
	free(copy);
	return 0;
}
