/*
 * fdmsg.h - messages that carry descriptors, over local sockets.
 *
 * The only place that knows the control data of sendmsg(2) and recvmsg(2).  A descriptor
 * that comes is close-on-exec from birth; one that was not meant to come does not stay open.
 */
#ifndef COMMON_FDMSG_H
#define COMMON_FDMSG_H

#include "common/attr.h"

#include <stddef.h>
#include <sys/types.h>

#define FDMSG_MAX 4 /* descriptors of a message */

/*
 * Send len bytes with count descriptors, at most FDMSG_MAX, which stay the sender's.  flags as
 * of sendmsg(2); no SIGPIPE.  Bytes sent, or -1 with errno.
 */
ssize_t fdmsg_send(int sock, const void *data, size_t len, const int *fds, size_t count, int flags)
	must_check;

/*
 * Receive one message of at most len bytes into data.  fds[0..*ret_count) are the caller's
 * then, the others are -1.  Bytes received, 0 at the end; or -1 with errno, and then none is
 * left open, and the message is gone:
 *   EMSGSIZE  it had more bytes, or more descriptors than FDMSG_MAX
 *   EMFILE    it came with descriptors, and this process may not have so many more.  data is
 *             its len bytes; a shorter message is EMSGSIZE, too
 */
ssize_t fdmsg_receive(int sock, void *data, size_t len, int fds[FDMSG_MAX], size_t *ret_count,
                      int flags) must_check;

#endif
