#include "common/frame.h"

#include <errno.h>
#include <stdbool.h>

static void put_be32(char *at, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		at[i] = (char)(unsigned char)(v >> (24 - 8 * i));
}

static uint32_t get_be32(const char *at)
{
	uint32_t v = 0;

	for (int i = 0; i < 4; i++)
		v = v << 8 | (unsigned char)at[i];
	return v;
}

void frame_put(struct buf *out, enum frame_type type, uint64_t call, const void *payload,
               size_t len)
{
	char header[FRAME_HEADER_SIZE];

	if (len > UINT32_MAX || len > out->max || out->len + sizeof(header) + len > out->max) {
		out->failed = true;
		return;
	}
	put_be32(header, (uint32_t)len);
	header[4] = (char)type;
	put_be32(header + 5, (uint32_t)(call >> 32));
	put_be32(header + 9, (uint32_t)call);
	buf_add(out, header, sizeof(header));
	buf_add(out, payload, len);
}

void frame_put_credit(struct buf *out, uint64_t call, uint32_t bytes)
{
	char payload[4];

	put_be32(payload, bytes);
	frame_put(out, FRAME_CREDIT, call, payload, sizeof(payload));
}

/* The largest payload a type may carry; false for a type that does not exist. */
static bool type_limit(unsigned int type, size_t *ret_max)
{
	switch (type) {
	case FRAME_HELLO:
	case FRAME_START:
	case FRAME_READY:
	case FRAME_EXIT:
		*ret_max = FRAME_CONTROL_MAX;
		return true;
	case FRAME_INPUT:
	case FRAME_STDOUT:
	case FRAME_STDERR:
		*ret_max = FRAME_DATA_MAX;
		return true;
	case FRAME_CREDIT:
	case FRAME_PONG:
		*ret_max = 4;
		return true;
	case FRAME_END:
	case FRAME_CANCEL:
	case FRAME_PING:
		*ret_max = 0;
		return true;
	default:
		return false;
	}
}

int frame_get(const char *data, size_t len, struct frame *ret, size_t *ret_size, struct err *e)
{
	size_t size, max;
	unsigned int type;

	if (len < FRAME_HEADER_SIZE)
		return 0;
	size = get_be32(data);
	type = (unsigned char)data[4];
	if (!type_limit(type, &max))
		return err_set(e, EPROTO, "unknown frame type 0x%02x", type);
	if (size > max)
		return err_set(e, EPROTO, "frame type 0x%02x with %zu bytes, at most %zu", type,
		               size, max);
	if (len < FRAME_HEADER_SIZE + size)
		return 0;
	ret->type = (enum frame_type)type;
	ret->call = (uint64_t)get_be32(data + 5) << 32 | get_be32(data + 9);
	ret->payload = data + FRAME_HEADER_SIZE;
	ret->len = size;
	*ret_size = FRAME_HEADER_SIZE + size;
	return 1;
}

uint32_t frame_number(const struct frame *f)
{
	return f->len == 4 ? get_be32(f->payload) : 0;
}
