#include "guest/hello.h"

#include "common/attr.h"
#include "common/json.h"
#include "guest/fault.h"

static int read_fields(const struct json *hello, struct hello *ret, struct err *e)
{
	static const struct json_field fields[] = {
		{ .name = "version", .type = JSON_INT, .required = true },
		{ .name = "tenant", .type = JSON_STRING, .required = true },
		{ .name = "processes", .type = JSON_INT, .required = true },
	};
	const struct json *v[ARRAY_LEN(fields)];
	struct json_faults faults = { .count = 0 };
	struct uuid tenant;

	if (!json_fields(hello, "", fields, ARRAY_LEN(fields), v, &faults))
		return err_set(e, FAULT_INVALID, "%s", faults.first.text);
	if (!uuid_parse(json_str(v[1]), &tenant) || json_int(v[2]) < 1)
		return err_set(e, FAULT_INVALID, "tenant must be a UUID and processes positive");
	*ret = (struct hello){ tenant, (size_t)json_int(v[2]) };
	return 0;
}

int hello_read(const struct frame *f, struct hello *ret, struct err *e)
{
	auto_json struct json *hello = NULL;
	struct err why = ERR_INIT;

	if (f->type != FRAME_HELLO || f->call)
		return err_set(e, FAULT_INVALID, "must be the first frame, with call id 0");
	if (json_parse(f->payload, f->len, &hello, &why) < 0)
		return err_set(e, FAULT_INVALID, "%s", why.text);
	/* The version first: a later one may have other fields. */
	if (json_type(hello) == JSON_OBJECT && json_get(hello, "version") &&
	    json_int(json_get(hello, "version")) != FRAME_VERSION)
		return err_set(e, FAULT_INVALID,
		               "the daemon speaks another version of the protocol");
	return read_fields(hello, ret, e);
}
