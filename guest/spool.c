#include "guest/spool.h"

#include "common/fd.h"
#include "common/id.h"
#include "common/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
	struct spool *newest;
	size_t count;
	uint64_t sum;  /* bytes kept of all */
	uint64_t next; /* number of the next one */
	char name[8];  /* of this guest: an id of an earlier one is not known */
} spools;

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void forget(struct spool *s)
{
	struct spool **at = &spools.newest;

	while (*at && *at != s)
		at = &(*at)->next;
	if (*at)
		*at = s->next;
	spools.count--;
	spools.sum -= s->charged;
	fd_close(&s->fd);
	json_free(&s->result);
	free(s);
}

/* Make room by dropping the oldest one whose command has ended; false when all run. */
static bool drop_oldest(void)
{
	struct spool *oldest = NULL;

	for (struct spool *s = spools.newest; s; s = s->next)
		if (!s->owner)
			oldest = s;
	if (oldest)
		forget(oldest);
	return oldest != NULL;
}

static void name_guest(void)
{
	struct uuid id = uuid_new();

	(void)snprintf(spools.name, sizeof(spools.name), "%s", id.text + strlen(id.text) - 6);
}

struct spool *spool_new(void *owner, const char *name)
{
	struct spool *s;

	if (spools.count >= SPOOL_OUTPUTS && !drop_oldest())
		return NULL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	if (!spools.name[0])
		name_guest();
	(void)snprintf(s->id, sizeof(s->id), "out_%s_%" PRIu64, spools.name, ++spools.next);
	s->background = name != NULL;
	(void)snprintf(s->name, sizeof(s->name), "%s", name ? name : "");
	s->name[utf8_whole(s->name, strlen(s->name))] = '\0';
	s->fd = -1;
	s->owner = owner;
	s->next = spools.newest;
	spools.newest = s;
	spools.count++;
	return s;
}

/* From here on nothing is kept, and of what was, the beginning alone: the end is its end no more.
 */
static void tear(struct spool *s)
{
	uint64_t kept = least(s->total, SPOOL_HEAD);

	spools.sum -= s->charged - least(s->charged, kept);
	s->charged = least(s->charged, kept);
	s->torn = true;
	if (s->fd >= 0 && ftruncate(s->fd, (off_t)s->charged) < 0)
		fd_close(&s->fd);
}

static bool make_room(struct spool *s, size_t len)
{
	uint64_t more = least(s->total + len, SPOOL_HEAD + SPOOL_TAIL) - s->charged;

	while (spools.sum + more > SPOOL_SUM)
		if (!drop_oldest())
			return false;
	spools.sum += more;
	s->charged += more;
	return true;
}

/* Where byte number offset is, and how many follow it there. */
static off_t place(uint64_t offset, size_t *len)
{
	uint64_t at = offset, room = SPOOL_HEAD - offset;

	if (offset >= SPOOL_HEAD) {
		at = SPOOL_HEAD + (offset - SPOOL_HEAD) % SPOOL_TAIL;
		room = SPOOL_HEAD + SPOOL_TAIL - at;
	}
	if (*len > room)
		*len = (size_t)room;
	return (off_t)at;
}

void spool_add(struct spool *s, const char *data, size_t len)
{
	if (!s->torn && !make_room(s, len))
		tear(s);
	if (!s->torn && s->fd < 0)
		s->fd = memfd_create("output", MFD_CLOEXEC);
	while (len && !s->torn) {
		size_t n = len;
		off_t at = place(s->total, &n);

		if (s->fd < 0 || pwrite(s->fd, data, n, at) != (ssize_t)n) {
			tear(s);
			break;
		}
		s->total += n;
		data += n;
		len -= n;
	}
	s->total += len;
}

void spool_end(struct spool *s, struct json *result)
{
	s->owner = NULL;
	s->result = result;
}

void spool_drop(struct spool **s)
{
	if (*s)
		forget(*s);
	*s = NULL;
}

struct spool *spool_find(const char *id)
{
	struct spool *s = spools.newest;

	while (s && strcmp(s->id, id) != 0)
		s = s->next;
	return s;
}

void spool_each(void (*fn)(void *ctx, const struct spool *s), void *ctx)
{
	for (const struct spool *s = spools.newest; s; s = s->next)
		fn(ctx, s);
}

void spool_gap(const struct spool *s, uint64_t *ret_from, uint64_t *ret_to)
{
	*ret_from = *ret_to = s->total;
	if (s->torn) {
		*ret_from = s->charged;
	} else if (s->total > SPOOL_HEAD + SPOOL_TAIL) {
		*ret_from = SPOOL_HEAD;
		*ret_to = s->total - SPOOL_TAIL;
	}
}

size_t spool_read(const struct spool *s, uint64_t offset, char *data, size_t len)
{
	uint64_t from, to;
	ssize_t n;
	off_t at;

	spool_gap(s, &from, &to);
	if (offset >= s->total || s->fd < 0)
		return 0;
	len = (size_t)least(len, (offset < from ? from : s->total) - offset);
	at = place(offset, &len);
	n = pread(s->fd, data, len, at);
	return n > 0 ? (size_t)n : 0;
}

void spool_close(void)
{
	while (spools.newest)
		forget(spools.newest);
}
