/* The channel between daemon and guest: whatever comes, frames are what their bytes say. */
#include "fuzz/fuzz.h"

#include "common/frame.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *at = (const char *)data, *end = at + size;
	auto_buf struct buf again = BUF_INIT(size + 1);
	struct err e = ERR_INIT;
	size_t len;
	struct frame f;

	while (frame_get(at, (size_t)(end - at), &f, &len, &e) == 1) {
		demand(len <= (size_t)(end - at));
		demand(f.payload >= at && f.payload + f.len == at + len);
		buf_consume(&again, again.len);
		frame_put(&again, f.type, f.call, f.payload, f.len);
		demand(!buf_failed(&again) && again.len == len);
		demand(memcmp(again.data, at, len) == 0);
		(void)frame_number(&f);
		at += len;
	}
	return 0;
}
