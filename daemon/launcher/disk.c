#include "daemon/launcher/disk.h"

#include "common/fd.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MIB        20
#define INODE_ROOM 65536 /* a file that can still be made counts as that many bytes */

/* Bytes; files without number exhaust a file system as files without end do. */
static uint64_t room_of(int fd)
{
	struct statvfs fs;
	uint64_t bytes, files;

	if (fstatvfs(fd, &fs) < 0)
		return 0;
	bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (fs.f_files == 0) /* makes them as it needs them */
		return bytes;
	files = (uint64_t)fs.f_favail < (UINT64_MAX / INODE_ROOM)
	                ? (uint64_t)fs.f_favail * INODE_ROOM
	                : UINT64_MAX;
	return bytes < files ? bytes : files;
}

static uint64_t bytes_of(unsigned int mib)
{
	return (uint64_t)mib << MIB;
}

/* -- the reserve ----------------------------------------------------------------------- */

bool disk_drop_reserve(int state_fd)
{
	return unlinkat(state_fd, DISK_RESERVE_NAME, 0) == 0;
}

void disk_release(struct disk *d)
{
	if (!d->reserved || room_of(d->state_fd) >= bytes_of(d->limits.reserve))
		return;
	d->reserved = false;
	if (disk_drop_reserve(d->state_fd))
		log_warn("disk: the reserve of %u MiB is given to the database", d->limits.reserve);
	else
		log_error("disk: give the reserve back: %s", strerrordesc_np(errno));
}

void disk_refill(struct disk *d)
{
	auto_close int fd = -1;
	int failed;

	if (d->reserved || d->limits.reserve == 0 ||
	    room_of(d->state_fd) < bytes_of(d->limits.start) + bytes_of(d->limits.reserve))
		return;
	fd = openat(d->state_fd, DISK_RESERVE_NAME,
	            O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	failed = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes_of(d->limits.reserve));
	d->reserved = failed == 0;
	if (d->reserved)
		return;
	log_warn("disk: no reserve of %u MiB: %s", d->limits.reserve, strerrordesc_np(failed));
	(void)disk_drop_reserve(d->state_fd);
}

/* By an earlier daemon, and all of it. */
static bool is_reserved(const struct disk *d)
{
	struct stat st;

	return d->limits.reserve &&
	       fstatat(d->state_fd, DISK_RESERVE_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       S_ISREG(st.st_mode) && (uint64_t)st.st_blocks * 512 >= bytes_of(d->limits.reserve);
}

void disk_open(struct disk *d, int state_fd, const struct disk_limits *limits)
{
	*d = (struct disk){ .state_fd = state_fd, .limits = *limits };
	d->reserved = is_reserved(d);
	if (!d->reserved)
		(void)disk_drop_reserve(state_fd);
	disk_refill(d);
	if (!d->reserved && limits->reserve)
		log_warn("disk: nothing is held in reserve for the database; for that the file "
		         "system of the state directory needs %u MiB",
		         limits->start + limits->reserve);
}

/* -- how much there is --------------------------------------------------------------------- */

/* On the way up both limits count as the higher one, or it would go back and forth. */
static enum disk_level level_of(const struct disk *d, uint64_t room)
{
	if (room < bytes_of(d->limits.end))
		return DISK_END;
	if (room < bytes_of(d->limits.start))
		return d->level == DISK_END ? DISK_END : DISK_NO_START;
	return DISK_ENOUGH;
}

static void say(const struct disk *d, uint64_t room)
{
	static const char remedy[] =
		"free some, or give workspaces and guest states a file system of their own";
	uint64_t left = room >> MIB;

	switch (d->level) {
	case DISK_ENOUGH:
		log_info("disk: sandboxes start again: %" PRIu64 " MiB are left", left);
		break;
	case DISK_NO_START:
		log_warn("disk: %" PRIu64 " MiB are left on the file system of the state "
		         "directory; below %u (--disk-start-mb) no sandbox starts; %s",
		         left, d->limits.start, remedy);
		break;
	case DISK_END:
		log_error("disk: %" PRIu64 " MiB are left on the file system of the state "
		          "directory; below %u (--disk-end-mb) sandboxes that write there end; %s",
		          left, d->limits.end, remedy);
		break;
	}
}

enum disk_level disk_look(struct disk *d)
{
	uint64_t room = room_of(d->state_fd);
	enum disk_level level = level_of(d, room);

	if (level == d->level)
		return level;
	d->level = level;
	say(d, room);
	return level;
}

/* -- sandboxes ----------------------------------------------------------------------------- */

bool disk_short(const struct disk_places *p, unsigned int mib)
{
	for (unsigned int i = 0; i < p->n; i++)
		if (p->fds[i] < 0 || room_of(p->fds[i]) < bytes_of(mib))
			return true;
	return false;
}

static int open_place(int dir, const char *path)
{
	return openat(dir, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* It may not be there before the first start; then it will be where its parents are. */
static int open_guest_state(int state_fd, const struct uuid *tenant)
{
	char own[64 + UUID_TEXT_LEN];
	const char *paths[] = { own, "tenants", "." };
	int fd = -1;

	(void)snprintf(own, sizeof(own), "tenants/%s/state", tenant->text);
	for (size_t i = 0; i < ARRAY_LEN(paths) && fd < 0; i++)
		fd = open_place(state_fd, paths[i]);
	return fd;
}

void disk_places_open(struct disk_places *p, int state_fd, const struct tenant *tenant)
{
	p->n = 0;
	p->fds[p->n++] = open_guest_state(state_fd, &tenant->id);
	if (!tenant->part_count)
		p->fds[p->n++] = open_place(AT_FDCWD, tenant->workspace);
	for (size_t i = 0; i < tenant->part_count && p->n < ARRAY_LEN(p->fds); i++)
		p->fds[p->n++] = open_place(AT_FDCWD, tenant->parts[i].path);
}

void disk_places_close(struct disk_places *p)
{
	while (p->n > 0)
		fd_close(&p->fds[--p->n]);
}
