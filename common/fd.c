#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

void fd_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
	errno = saved;
}

int fd_write_all(int fd, const void *data, size_t len, struct err *e)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(e, "write");
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int fd_read_all(int fd, size_t max, char **ret_data, size_t *ret_len, struct err *e)
{
	auto_free char *data = malloc(max + 2);
	size_t len = 0;

	if (!data)
		return err_set(e, ENOMEM, "no memory for %zu bytes", max);
	for (;;) {
		ssize_t n = read(fd, data + len, max + 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(e, "read");
		if (n == 0)
			break;
		len += (size_t)n;
		if (len > max)
			return err_set(e, EFBIG, "larger than %zu bytes", max);
	}
	data[len] = '\0';
	*ret_data = mem_take(&data);
	*ret_len = len;
	return 0;
}

int fd_set_nonblocking(int fd, struct err *e)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return err_errno(e, "set O_NONBLOCK");
	return 0;
}

static void close_span(unsigned int from, unsigned int to)
{
	if (from <= to)
		(void)syscall(SYS_close_range, from, to, 0);
}

void fd_close_from(int first, const int *keep, size_t n)
{
	unsigned int from = (unsigned int)first;

	for (size_t i = 0; i < n; i++) {
		unsigned int k = (unsigned int)keep[i];

		if (keep[i] < 0 || k < from)
			continue;
		if (k > from)
			close_span(from, k - 1);
		from = k + 1;
	}
	close_span(from, UINT_MAX);
}
