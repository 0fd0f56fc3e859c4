#include "daemon/model/model.h"

#include "daemon/model/demo.h"

#include <string.h>

static const struct model catalogue[] = {
	{
		.id = "demo",
		.label = "Demo (built in; repeats text, runs \"$ command\" lines)",
		.provider = "builtin",
		.connection = "builtin",
		.transport_model = "demo",
		.dialect = "demo",
		.respond = demo_respond,
	},
};

size_t model_count(void)
{
	return ARRAY_LEN(catalogue);
}

const struct model *model_at(size_t i)
{
	return i < ARRAY_LEN(catalogue) ? &catalogue[i] : NULL;
}

const struct model *model_find(const char *id)
{
	for (size_t i = 0; i < ARRAY_LEN(catalogue); i++)
		if (strcmp(catalogue[i].id, id) == 0)
			return &catalogue[i];
	return NULL;
}

int model_respond(const struct model *m, const struct item_list *transcript,
                  const struct model_sink *sink, struct cancel *cancel, struct model_answer *ret,
                  struct err *e)
{
	if (cancel_fired(cancel))
		return err_set(e, MODEL_CANCELLED, "cancelled");
	return m->respond(transcript, sink, cancel, ret, e);
}
