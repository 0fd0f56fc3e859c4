/*
 * What the runner's own children report, one of which may have been taken over.  The first
 * byte says which step is waited for, the second with how many descriptors, the third how many
 * come; the rest is the record.
 */
#include "fuzz/fuzz.h"

#include "common/err.h"
#include "runner/report.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

/* As it lies on the wire. */
struct wire {
	int32_t step, value;
	struct err why;
};

/* More than a receiver takes, too, which fdmsg_send() would not do. */
static void send_all(int to, const void *data, size_t len, size_t fds)
{
	union {
		char room[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr head;
	} control = { .room = { 0 } }; /* each of the descriptors is 0 */
	char *copy = room_for(len);
	struct iovec part = { .iov_base = copy, .iov_len = len };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };

	memcpy(copy, data, len);
	if (fds) {
		m.msg_control = control.room;
		m.msg_controllen = CMSG_SPACE(fds * sizeof(int));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(fds * sizeof(int));
	}
	demand(sendmsg(to, &m, MSG_NOSIGNAL) == (ssize_t)len);
	free(copy);
}

static bool is_wanted(const struct wire *w, size_t len, int32_t step, size_t wanted, size_t come)
{
	return len == sizeof(*w) && !w->why.code && w->step == step && wanted == come &&
	       come <= FDMSG_MAX;
}

static void check_error(const struct wire *w, size_t len, size_t come, const struct err *e)
{
	size_t text = strnlen(w->why.text, sizeof(w->why.text) - 1);

	demand(e->code && memchr(e->text, '\0', sizeof(e->text)));
	if (len != sizeof(*w) || !w->why.code || come > FDMSG_MAX)
		return;
	demand(e->code == w->why.code);
	demand(strlen(e->text) == text && memcmp(e->text, w->why.text, text) == 0);
}

/* head is what is waited for, with how many descriptors, and how many come. */
static void wait_for(int channel, const uint8_t head[3], const struct wire *w, size_t len)
{
	enum report_step step = (enum report_step)(head[0] % 8);
	size_t wanted = head[1] % (FDMSG_MAX + 1), come = head[2] % 7;
	bool right = is_wanted(w, len, (int32_t)step, wanted, come);
	struct report got = { .value = 7 };
	struct err e = ERR_INIT;

	if (report_wait(channel, step, wanted, 1000, &got, &e) < 0) {
		demand(!right && got.value == 7);
		check_error(w, len, come, &e);
		return;
	}
	demand(right && got.step == step && got.value == w->value && got.fd_count == come);
	for (size_t i = 0; i < got.fd_count; i++)
		demand(got.fds[i] > 2 && close(got.fds[i]) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire w = { .step = 0 };
	struct err e = ERR_INIT;
	int ends[2], free_fd;
	size_t len = size - 3;

	if (size < 4 || len > sizeof(w) + 100)
		return 0;
	memcpy(&w, data + 3, len < sizeof(w) ? len : sizeof(w));
	demand(report_pair(ends, &e) == 0);
	free_fd = lowest_fd();
	send_all(ends[1], data + 3, len, data[2] % 7);
	wait_for(ends[0], data, &w, len);
	demand(lowest_fd() == free_fd);
	demand(close(ends[0]) == 0 && close(ends[1]) == 0);
	return 0;
}
