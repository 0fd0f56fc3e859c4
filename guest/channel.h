/*
 * channel.h - the guest's end of the two pipes to the daemon.
 *
 * Never blocks: frames wait in memory while the pipe is full.  The queue is
 * bounded, because data is only sent while channel_room() says so and input is
 * not read while the queue is long.
 */
#ifndef GUEST_CHANNEL_H
#define GUEST_CHANNEL_H

#include "common/frame.h"
#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Take over both descriptors.  on_frame is called for each frame that arrives;
 * its payload is valid during the call.  on_end is called at the end of input.
 */
void channel_open(int in, int out, void (*on_frame)(const struct frame *f), void (*on_end)(void));
void channel_close(void);

/* May a data frame be queued now? */
bool channel_room(void);

void channel_send(enum frame_type type, uint64_t call, const void *payload, size_t len);

void channel_send_credit(uint64_t call, uint32_t bytes);

/* Send a control frame; takes value. */
void channel_send_json(enum frame_type type, uint64_t call, struct json *value);

/* Write what the pipe takes and watch it for the rest; once per turn of the loop. */
void channel_flush(void);

#endif
