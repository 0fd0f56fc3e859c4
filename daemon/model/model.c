#include "daemon/model/model.h"

#include "common/clock.h"
#include "daemon/metrics/metrics.h"
#include "daemon/model/demo.h"
#include "daemon/model/provider.h"

#include <string.h>

static const struct model demo = {
	.id = "demo",
	.label = "Demo (built in; repeats text, runs \"$ command\" lines)",
	.provider = "builtin",
	.connection = "builtin",
	.transport_model = "demo",
	.dialect = "demo",
};

/* Written once, before there is a second thread. */
static struct catalogue {
	const struct models *models; /* NULL = the built-in one alone */
	int courier;
	struct model v[MODELS_MAX];
} catalogue;

void model_declare(const struct models *models, int courier)
{
	catalogue.models = models;
	catalogue.courier = courier;
	for (size_t i = 0; i < models->n; i++) {
		const struct declared_model *m = &models->v[i];

		catalogue.v[i] = (struct model){
			.id = m->id,
			.label = m->label,
			.provider = "operator",
			.connection = m->id,
			.transport_model = m->model,
			.dialect = dialect_name(m->dialect),
			.context_window = m->context_window,
			.max_output_tokens = m->max_output_tokens,
			.sees_images = m->images,
			.reasoning = m->reasoning,
		};
		models_credential(m, catalogue.v[i].credential);
	}
}

size_t model_count(void)
{
	return catalogue.models ? catalogue.models->n : 1;
}

const struct model *model_at(size_t i)
{
	if (i >= model_count())
		return NULL;
	return catalogue.models ? &catalogue.v[i] : &demo;
}

const struct model *model_find(const char *id)
{
	for (size_t i = 0; i < model_count(); i++)
		if (strcmp(model_at(i)->id, id) == 0)
			return model_at(i);
	return NULL;
}

/* Why it failed told the attempts apart; a turn ends with one code and the text. */
static int ask_provider(const struct model *m, const struct model_prompt *prompt,
                        const struct model_sink *sink, struct cancel *cancel,
                        struct model_answer *ret, struct err *e)
{
	const struct provider p = { catalogue.models, (size_t)(m - catalogue.v), catalogue.courier,
		                    PROVIDER_ATTEMPT_MS };

	if (provider_respond(&p, prompt, sink, cancel, ret, e) == 0)
		return 0;
	if (e->code >= MODEL_FAILED && e->code < MODEL_CONTEXT && e->code != MODEL_CANCELLED)
		e->code = MODEL_FAILED;
	return -1;
}

int model_respond(const struct model *m, const struct model_prompt *prompt,
                  const struct model_sink *sink, struct cancel *cancel, struct model_answer *ret,
                  struct err *e)
{
	uint64_t asked_us = clock_mono_us();
	int rc;

	*ret = (struct model_answer){ .cost_nano = -1 };
	if (cancel_fired(cancel))
		return err_set(e, MODEL_CANCELLED, "cancelled");
	if (m == &demo)
		rc = demo_respond(prompt->transcript, sink, ret, e);
	else
		rc = ask_provider(m, prompt, sink, cancel, ret, e);
	metric_count(METRIC_PROVIDER, rc ? 1 : 0);
	metric_time(METRIC_TIME_PROVIDER, clock_mono_us() - asked_us);
	metric_add(METRIC_TOKENS, 0, ret->input_tokens);
	metric_add(METRIC_TOKENS, 1, ret->output_tokens);
	metric_add(METRIC_TOKENS, 2, ret->cached_tokens);
	return rc;
}
