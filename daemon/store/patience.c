#include "daemon/store/patience.h"

#include "common/clock.h"
#include "common/log.h"
#include "daemon/store/store.h"

#include <errno.h>
#include <poll.h>

#define PAUSE_MS 500

struct patience patience_begin(int stop_fd)
{
	return (struct patience){ .stop_fd = stop_fd, .until = clock_mono_ms() + PATIENCE_MS };
}

int patience_wait(struct patience *p, struct err *e)
{
	struct pollfd stop = { .fd = p->stop_fd, .events = POLLIN };

	if (e->code != STORE_UNAVAILABLE || clock_left_ms(p->until) == 0)
		return -1;
	if (!p->told)
		log_warn("%s; trying again for %d s", e->text, PATIENCE_MS / 1000);
	p->told = true;
	if (poll(&stop, 1, PAUSE_MS) > 0)
		return err_set(e, ECANCELED, "asked to end before the database was there");
	return 0;
}
