#include "daemon/tool/tool.h"

#include <string.h>

#define STEPS_MAX 100
#define TEXT_MAX  ((size_t)16384) /* bytes of all steps */
#define PLAN_MAX  ((size_t)60000) /* as JSON, which is part of the result's details */

static bool known(const char *status)
{
	return strcmp(status, "pending") == 0 || strcmp(status, "in_progress") == 0 ||
	       strcmp(status, "completed") == 0;
}

/* 0, or -1 with *ret filled. */
static int check_step(const struct json *step, size_t i, size_t *bytes, struct tool_outcome *ret)
{
	static const struct json_field fields[] = { { "step", JSON_STRING, true, false },
		                                    { "status", JSON_STRING, true, false } };
	struct json_faults faults = { 0 };
	const struct json *v[2];
	char path[32];

	json_path_index(path, sizeof(path), "steps", i);
	if (json_fields(step, path, fields, 2, v, &faults)) {
		*bytes += json_str_len(v[0]);
		if (!json_str_len(v[0]) || *bytes > TEXT_MAX)
			json_fault(&faults, path,
			           "a step has a text, all together at most %zu bytes", TEXT_MAX);
		if (!known(json_str(v[1])))
			json_fault(&faults, path, "status: pending, in_progress or completed");
	}
	if (!faults.count)
		return 0;
	(void)tool_refuse(ret, "invalid_arguments", faults.first.text);
	return -1;
}

/* JSON has six bytes for a control character. */
static bool fits_details(const struct json *steps)
{
	auto_buf struct buf text = BUF_INIT(PLAN_MAX);

	json_write(steps, &text);
	return !buf_failed(&text);
}

static int run_plan(const struct tool_context *c, const struct item *call, struct tool_outcome *ret,
                    struct err *e)
{
	static const struct json_field fields[] = { { "steps", JSON_ARRAY, true, false } };
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX);
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;
	size_t bytes = 0;

	(void)c;
	(void)e;
	if (tool_arguments(call, fields, ARRAY_LEN(fields), v, &doc, ret))
		return 0;
	if (json_len(v[0]) < 1 || json_len(v[0]) > STEPS_MAX)
		return tool_refuse(ret, "invalid_arguments", "steps: 1 to 100");
	for (size_t i = 0; i < json_len(v[0]); i++)
		if (check_step(json_at(v[0], i), i, &bytes, ret))
			return 0;
	if (!fits_details(v[0]))
		return tool_refuse(ret, "invalid_arguments",
		                   "steps: more than 60000 bytes as JSON");
	buf_adds(&text, "the plan is shown");
	tool_body(ret, &text);
	json_put_str(ret->details, "reason", "done");
	json_put(ret->details, "plan", json_copy(v[0]));
	return 0;
}

const struct tool tool_update_plan = {
	.shown = { "update_plan",
	           "Show the person the steps of the work and how far each is; all of them, each "
	           "time.",
	           SCHEMA_OBJECT(
			   "\"steps\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":100,\"items\":" SCHEMA_OBJECT(
				   SCHEMA_TEXT(
					   "step",
					   "what is to be done") ","
								 "\"status\":{\"type\":\"string\",\"enum\":[\"pending\","
								 "\"in_progress\",\"completed\"]}",
				   "\"step\",\"status\"") "}",
			   "\"steps\"") },
	.run = run_plan,
};
