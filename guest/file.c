#include "guest/file.h"

#include "guest/fault.h"
#include "guest/job.h"

#include <inttypes.h>

#define FIELDS_MAX 4

int file_request(const struct json *request, struct file_number *numbers, size_t n,
                 const char **ret_path, struct err *e)
{
	struct json_field fields[FIELDS_MAX] = {
		{ .name = "op", .type = JSON_STRING, .required = true },
		{ .name = "path", .type = JSON_STRING, .required = true },
	};
	const struct json *v[FIELDS_MAX];
	struct json_faults faults = { .count = 0 };

	for (size_t i = 0; i < n; i++)
		fields[2 + i] = (struct json_field){ .name = numbers[i].name, .type = JSON_INT };
	if (!json_fields(request, "", fields, 2 + n, v, &faults))
		return err_set(e, FAULT_INVALID, "%s", faults.first.text);
	*ret_path = json_str(v[1]);
	if (**ret_path != '/' || json_str_len(v[1]) > JOB_PATH_MAX)
		return err_set(e, FAULT_INVALID, "path: must be absolute and at most %d bytes",
		               JOB_PATH_MAX);
	for (size_t i = 0; i < n; i++) {
		if (!v[2 + i])
			continue;
		numbers[i].value = json_int(v[2 + i]);
		if (numbers[i].value < numbers[i].min || numbers[i].value > numbers[i].max)
			return err_set(e, FAULT_INVALID, "%s: must be from %" PRId64 " to %" PRId64,
			               numbers[i].name, numbers[i].min, numbers[i].max);
	}
	return 0;
}
