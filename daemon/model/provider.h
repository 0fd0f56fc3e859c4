/*
 * provider.h - an answer of a declared model, with as many attempts as it takes.
 */
#ifndef DAEMON_MODEL_PROVIDER_H
#define DAEMON_MODEL_PROVIDER_H

#include "daemon/model/model.h"
#include "daemon/model/models.h"
#include "daemon/model/prompt.h"

#define PROVIDER_ATTEMPTS       5        /* while nothing was shown */
#define PROVIDER_ATTEMPTS_SHOWN 2        /* once something was, which is taken back */
#define PROVIDER_RETRY_AFTER    120      /* seconds; who asks for more is not waited for */
#define PROVIDER_ATTEMPT_MS     3600000U /* one attempt in all, however busily it goes on */

struct provider {
	const struct models *models;
	size_t index;            /* of the model among them */
	int sock;                /* of courier_start() */
	unsigned int attempt_ms; /* PROVIDER_ATTEMPT_MS, but for tests */
};

/*
 * Ask until there is an answer, a fault that does not pass, or no attempt left.  Between
 * attempts it waits: 0.5 s, twice as long each time, or what the provider asks for.  What
 * the sink was told of an attempt that failed counts no more: sink->discarded says so, also
 * for the last one, and the text is kept as ITEM_DISCARDED, whatever becomes of the rest.  An
 * attempt that takes too long in all is the last.  Codes of fault.h.
 */
int provider_respond(const struct provider *p, const struct model_prompt *prompt,
                     const struct model_sink *sink, struct cancel *cancel, struct model_answer *ret,
                     struct err *e) must_check;

#endif
