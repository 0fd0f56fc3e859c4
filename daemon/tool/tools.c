#include "daemon/tool/tools.h"

#include "daemon/tool/tool.h"

#include <string.h>

/* In the order in which a model is told. */
static const struct tool *const tools[] = {
	&tool_shell,       &tool_shell_read, &tool_shell_write, &tool_shell_stop,
	&tool_read_output, &tool_read_file,  &tool_write_file,  &tool_edit_file,
	&tool_apply_patch, &tool_list_files, &tool_search,      &tool_update_plan,
};

static const struct tool *find(const struct item *call)
{
	for (size_t i = 0; i < ARRAY_LEN(tools); i++)
		if (strcmp(tools[i]->shown.name, call->tool) == 0)
			return tools[i];
	return NULL;
}

size_t tool_count(void)
{
	return ARRAY_LEN(tools);
}

const struct model_tool *tool_shown(size_t i)
{
	return &tools[i]->shown;
}

bool tool_writes(const struct item *call)
{
	const struct tool *tool = find(call);

	return tool && tool->writes; /* one that is not known is not run */
}

int tool_run(const struct tool_context *c, const struct item *call, struct tool_outcome *ret,
             struct err *e)
{
	const struct tool *tool = find(call);
	int rc;

	tool_begin(call, ret);
	if (!tool)
		return tool_refuse(ret, "unknown_tool", call->tool);
	rc = tool->run(c, call, ret, e);
	if (rc)
		tool_outcome_release(ret);
	return rc;
}

/* -- what is not run ------------------------------------------------------------------ */

void tool_refused(const struct item *call, const char *code, const char *text,
                  struct tool_outcome *ret)
{
	tool_begin(call, ret);
	(void)tool_refuse(ret, code, text);
}

void tool_interrupted(const struct item *call, struct tool_outcome *ret)
{
	tool_refused(call, "interrupted",
	             "the daemon ended while this call ran; it may or may not have had an effect",
	             ret);
}

static void take_nothing(void *ctx, int stream, const char *data, size_t len)
{
	(void)ctx;
	(void)stream;
	(void)data;
	(void)len;
}

int tool_prove(const struct tool_context *c, struct err *e)
{
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };
	struct output_sink sink = { take_nothing, NULL };
	struct file_listing listing = { .limit = 1 };

	if (sandbox_list(&use, "/", &listing, &sink, e) == 0)
		return 0;
	return tool_guest_answered(e->code) ? 0 : -1;
}
