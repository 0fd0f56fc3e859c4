/*
 * models.h - the models that the operator declared, read once and then constant.
 *
 * The file is strict JSON (docs/models.md).  Keys are not part of it and not kept here:
 * endpoint_key() reads one for the process that uses it.
 */
#ifndef DAEMON_MODEL_MODELS_H
#define DAEMON_MODEL_MODELS_H

#include "common/attr.h"
#include "common/err.h"
#include "daemon/model/effort.h"
#include "daemon/model/endpoint.h"
#include "daemon/model/reader.h"
#include "daemon/tenant/registry.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODELS_MAX            64
#define MODEL_HEADERS         16
#define MODEL_TEXT_MAX        256 /* bytes of a label, a name, a header's value */
#define MODEL_CREDENTIAL_SIZE 33  /* 32 hex digits */

struct model_header {
	char name[ENDPOINT_HEADER_MAX + 1];
	char value[MODEL_TEXT_MAX + 1];
};

struct declared_model {
	char id[TENANT_MODEL_MAX + 1];
	char label[MODEL_TEXT_MAX + 1];
	enum dialect dialect;
	struct endpoint at;             /* the path of the format is appended to its URL */
	char model[MODEL_TEXT_MAX + 1]; /* as the provider calls it */
	int64_t context_window;
	int64_t max_output_tokens;
	bool images; /* it can be shown them */
	struct model_reasoning reasoning;
	double input_price, output_price, cached_price; /* per million tokens; -1 = not known */
	unsigned int idle_ms;                           /* without an event of the answer */
	struct model_header headers[MODEL_HEADERS];
	size_t header_count;
};

struct models {
	struct declared_model v[MODELS_MAX];
	size_t n;
};

/*
 * Read and validate, keys too.  Calls line once for every fault with one line such as
 * "models[1].apiKeyFile: /srv/x: mode 0644, group or others can read it".  Files of keys
 * must not lie in a workspace of the registry.
 */
int models_load(const char *path, const struct registry *registry, struct models **ret,
                void (*line)(void *ctx, const char *line), void *ctx, struct err *e) must_check;

void models_free(struct models **m);

/* NULL = none of that id. */
const struct declared_model *models_find(const struct models *m, const char *id);

/*
 * Whose account it is, as far as the file says: the provider's address and the file of the
 * key, not the key, which may be renewed.
 */
void models_credential(const struct declared_model *m, char ret[MODEL_CREDENTIAL_SIZE]);

/* Which reasoning it takes back: that of the same model, of the same account. */
void models_origin(const struct declared_model *m, char ret[MODEL_CREDENTIAL_SIZE]);

/* What an answer cost, in billionths of the prices' currency; -1 = there are no prices. */
int64_t models_cost(const struct declared_model *m, const struct usage *usage);

/* "chat-completions" and the like. */
const char *dialect_name(enum dialect dialect);

#endif
