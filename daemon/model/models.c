/*
 * Reading the models.  Like the registry, nothing in it is repaired, guessed or skipped.
 */
#include "daemon/model/models.h"

#include "common/json.h"
#include "daemon/model/declared.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define IDLE_STANDARD 300 /* seconds */
#define IDLE_MAX      3600
#define TOKENS_MAX    100000000
#define COST_MAX      9007199254740991.0 /* billionths: what JSON numbers hold exactly */
#define PRICE_MAX     1000000.0
#define PATH_SIZE     96

struct reading {
	struct json_faults *faults;
	const struct registry *registry;
	struct models *models;
	struct declared_model *m; /* the one that is read */
	const char *path;         /* of it */
};

static const char *const dialects[] = {
	[DIALECT_CHAT] = "chat-completions",
	[DIALECT_RESPONSES] = "responses",
	[DIALECT_MESSAGES] = "messages",
};

const char *dialect_name(enum dialect dialect)
{
	return dialects[dialect];
}

static void printf_like(3, 4) fault(struct reading *r, const char *field, const char *fmt, ...)
{
	char at[PATH_SIZE], text[480];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_path_field(at, sizeof(at), r->path, field);
	json_fault(r->faults, at, "%s", text);
}

/* -- fields -------------------------------------------------------------------------------- */

static void read_id(struct reading *r, const char *id)
{
	if (!registry_model_valid(id))
		fault(r, "id", "must be 1 to %d of letters, digits and \"-._:/\"",
		      TENANT_MODEL_MAX);
	else if (strcmp(id, "demo") == 0)
		fault(r, "id", "\"demo\" is the built-in model's");
	else if (models_find(r->models, id))
		fault(r, "id", "the same id as of a model before it");
	(void)snprintf(r->m->id, sizeof(r->m->id), "%s", id);
}

static void read_text(struct reading *r, const char *field, const char *text,
                      char ret[MODEL_TEXT_MAX + 1])
{
	size_t len = strlen(text);

	if (len < 1 || len > MODEL_TEXT_MAX)
		fault(r, field, "%zu bytes, must be 1 to %d", len, MODEL_TEXT_MAX);
	(void)snprintf(ret, MODEL_TEXT_MAX + 1, "%s", text);
}

static void read_dialect(struct reading *r, const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(dialects); i++) {
		if (strcmp(dialects[i], name) != 0)
			continue;
		r->m->dialect = (enum dialect)i;
		return;
	}
	fault(r, "api", "must be chat-completions, responses or messages");
}

static void read_url(struct reading *r, const char *url, bool has_key)
{
	struct err e = ERR_INIT;

	if (endpoint_url(&r->m->at, url, has_key ? "apiKeyFile" : NULL, &e) < 0)
		fault(r, "baseUrl", "%s", e.text);
	else if (url[strlen(url) - 1] == '/')
		fault(r, "baseUrl", "must not end in a slash: the path of its format is appended");
}

static void read_number(struct reading *r, const char *field, const struct json *v, int64_t max,
                        int64_t *ret)
{
	*ret = json_int(v);
	if (*ret < 1 || *ret > max)
		fault(r, field, "must be 1 to %lld", (long long)max);
}

static void read_key(struct reading *r, const char *file)
{
	struct err e = ERR_INIT;

	if (endpoint_key_file(&r->m->at, file, r->registry, &e) < 0)
		fault(r, "apiKeyFile", "%s", e.text);
}

/* -- the rest of a model ----------------------------------------------------------------------- */

static void read_price(struct reading *r, const char *name, const struct json *v, double *ret)
{
	char field[32];

	*ret = v ? json_double(v) : -1;
	(void)snprintf(field, sizeof(field), "prices.%s", name);
	if (v && (*ret < 0 || *ret > PRICE_MAX))
		fault(r, field, "must be 0 to %.0f", PRICE_MAX);
}

static void read_prices(struct reading *r, const struct json *v)
{
	static const struct json_field fields[] = {
		{ "input", JSON_DOUBLE, .required = true },
		{ "output", JSON_DOUBLE, .required = true },
		{ "cached", JSON_DOUBLE },
	};
	const struct json *found[ARRAY_LEN(fields)] = { NULL };
	char at[PATH_SIZE];

	json_path_field(at, sizeof(at), r->path, "prices");
	if (v)
		(void)json_fields(v, at, fields, ARRAY_LEN(fields), found, r->faults);
	read_price(r, "input", found[0], &r->m->input_price);
	read_price(r, "output", found[1], &r->m->output_price);
	read_price(r, "cached", found[2], &r->m->cached_price);
}

static void read_effort(struct reading *r, const struct json *v, size_t i)
{
	const char *name = json_str(v);
	enum effort effort = name ? effort_named(name) : EFFORTS;
	char field[64];

	(void)snprintf(field, sizeof(field), "reasoning.efforts[%zu]", i);
	if (effort == EFFORTS)
		fault(r, field, "must be none, low, medium, high, xhigh or max");
	else if (r->m->reasoning.efforts & 1U << effort)
		fault(r, field, "stands there already");
	else
		r->m->reasoning.efforts |= 1U << effort;
}

/* That it is there says that the model reasons. */
static void read_reasoning(struct reading *r, const struct json *v)
{
	static const struct json_field fields[] = {
		{ "efforts", JSON_ARRAY },
		{ "budget", JSON_BOOL },
		{ "summaries", JSON_BOOL },
	};
	const struct json *found[ARRAY_LEN(fields)] = { NULL };
	struct model_reasoning *reasoning = &r->m->reasoning;
	char at[PATH_SIZE];

	if (!v)
		return;
	json_path_field(at, sizeof(at), r->path, "reasoning");
	(void)json_fields(v, at, fields, ARRAY_LEN(fields), found, r->faults);
	*reasoning = (struct model_reasoning){ .on = true,
		                               .budget = json_bool(found[1]),
		                               .summaries = json_bool(found[2]) };
	for (size_t i = 0; i < json_len(found[0]); i++)
		read_effort(r, json_at(found[0], i), i);
	if (reasoning->budget && (r->m->dialect != DIALECT_MESSAGES || json_len(found[0])))
		fault(r, "reasoning.budget", "is for messages only, and instead of efforts");
	if (reasoning->summaries && (r->m->dialect == DIALECT_CHAT || reasoning->budget))
		fault(r, "reasoning.summaries",
		      "is for responses, and for messages without a budget");
}

/* The file of models is not kept like a secret. */
static bool may_carry_key(const char *name)
{
	static const char *const parts[] = { "auth",  "cookie", "credential", "key",
		                             "passw", "secret", "signature",  "token" };

	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (strcasestr(name, parts[i]))
			return true;
	return false;
}

static void take_header(struct declared_model *m, const char *name, const char *value)
{
	struct model_header *h = &m->headers[m->header_count++];

	(void)snprintf(h->name, sizeof(h->name), "%s", name);
	(void)snprintf(h->value, sizeof(h->value), "%s", value);
}

static void read_header(void *ctx, const char *name, const struct json *v)
{
	struct reading *r = ctx;
	const char *value = json_str(v);
	char field[64];

	(void)snprintf(field, sizeof(field), "headers.%.40s", name);
	if (!endpoint_header_valid(name))
		fault(r, "headers", "a name is not 1 to 64 of letters, digits, \"-\" and \"_\"");
	else if (endpoint_header_reserved(name) || may_carry_key(name))
		fault(r, field, "is not the operator's to set");
	else if (!value || !*value || strlen(value) > MODEL_TEXT_MAX ||
	         !endpoint_printable(value, 0x20))
		fault(r, field, "must be 1 to %d bytes of printable ASCII", MODEL_TEXT_MAX);
	else if (r->m->header_count == MODEL_HEADERS)
		fault(r, "headers", "more than %d of them", MODEL_HEADERS);
	else
		take_header(r->m, name, value);
}

enum field {
	FIELD_ID,
	FIELD_LABEL,
	FIELD_API,
	FIELD_URL,
	FIELD_MODEL,
	FIELD_KEY,
	FIELD_WINDOW,
	FIELD_OUTPUT,
	FIELD_PRICES,
	FIELD_HEADERS,
	FIELD_IDLE,
	FIELD_IMAGES,
	FIELD_REASONING,
	FIELDS,
};

static const struct json_field fields[FIELDS] = {
	[FIELD_ID] = { "id", JSON_STRING, .required = true },
	[FIELD_LABEL] = { "label", JSON_STRING, .required = true },
	[FIELD_API] = { "api", JSON_STRING, .required = true },
	[FIELD_URL] = { "baseUrl", JSON_STRING, .required = true },
	[FIELD_MODEL] = { "model", JSON_STRING, .required = true },
	[FIELD_KEY] = { "apiKeyFile", JSON_STRING },
	[FIELD_WINDOW] = { "contextWindow", JSON_INT, .required = true },
	[FIELD_OUTPUT] = { "maxOutputTokens", JSON_INT, .required = true },
	[FIELD_PRICES] = { "prices", JSON_OBJECT },
	[FIELD_HEADERS] = { "headers", JSON_OBJECT },
	[FIELD_IDLE] = { "idleSeconds", JSON_INT },
	[FIELD_IMAGES] = { "images", JSON_BOOL },
	[FIELD_REASONING] = { "reasoning", JSON_OBJECT },
};

static void read_strings(struct reading *r, const struct json *const found[FIELDS])
{
	if (found[FIELD_ID])
		read_id(r, json_str(found[FIELD_ID]));
	if (found[FIELD_LABEL])
		read_text(r, "label", json_str(found[FIELD_LABEL]), r->m->label);
	if (found[FIELD_API])
		read_dialect(r, json_str(found[FIELD_API]));
	if (found[FIELD_URL])
		read_url(r, json_str(found[FIELD_URL]), found[FIELD_KEY] != NULL);
	if (found[FIELD_MODEL])
		read_text(r, "model", json_str(found[FIELD_MODEL]), r->m->model);
	if (found[FIELD_KEY])
		read_key(r, json_str(found[FIELD_KEY]));
}

static void read_model(struct reading *r, const struct json *v)
{
	const struct json *found[FIELDS];
	struct declared_model *m = r->m;
	int64_t idle = IDLE_STANDARD;

	(void)json_fields(v, r->path, fields, FIELDS, found, r->faults);
	read_strings(r, found);
	if (found[FIELD_WINDOW])
		read_number(r, "contextWindow", found[FIELD_WINDOW], TOKENS_MAX,
		            &m->context_window);
	if (found[FIELD_OUTPUT])
		read_number(r, "maxOutputTokens", found[FIELD_OUTPUT], TOKENS_MAX,
		            &m->max_output_tokens);
	if (m->context_window && m->max_output_tokens > m->context_window)
		fault(r, "maxOutputTokens", "is more than contextWindow");
	read_prices(r, found[FIELD_PRICES]);
	json_each(found[FIELD_HEADERS], read_header, r);
	if (found[FIELD_IDLE])
		read_number(r, "idleSeconds", found[FIELD_IDLE], IDLE_MAX, &idle);
	m->idle_ms = (unsigned int)idle * 1000;
	m->images = json_bool(found[FIELD_IMAGES]);
	read_reasoning(r, found[FIELD_REASONING]);
}

/* -- the whole --------------------------------------------------------------------------------- */

/* Counted after it is read, so that it is compared with those before it only. */
static void read_entry(void *ctx, const struct json *v, const char *at, struct json_faults *faults)
{
	struct reading *r = ctx;

	r->faults = faults;
	r->path = at;
	r->m = &r->models->v[r->models->n];
	read_model(r, v);
	r->models->n++;
}

int models_load(const char *path, const struct registry *registry, struct models **ret,
                void (*line)(void *ctx, const char *line), void *ctx, struct err *e)
{
	struct reading r = { .registry = registry };
	const struct declared_file file = { .path = path,
		                            .list = "models",
		                            .most = MODELS_MAX,
		                            .entry = read_entry,
		                            .ctx = &r,
		                            .line = line,
		                            .line_ctx = ctx };

	if (sodium_init() < 0 || !(r.models = calloc(1, sizeof(*r.models))))
		abort();
	if (declared_read(&file, e) < 0) {
		models_free(&r.models);
		return -1;
	}
	*ret = r.models;
	return 0;
}

const struct declared_model *models_find(const struct models *m, const char *id)
{
	for (size_t i = 0; i < m->n; i++)
		if (strcmp(m->v[i].id, id) == 0)
			return &m->v[i];
	return NULL;
}

static void hash_words(const char *const *words, size_t n, char ret[MODEL_CREDENTIAL_SIZE])
{
	unsigned char hash[(MODEL_CREDENTIAL_SIZE - 1) / 2];
	crypto_generichash_state state;

	(void)crypto_generichash_init(&state, NULL, 0, sizeof(hash));
	for (size_t i = 0; i < n; i++)
		(void)crypto_generichash_update(&state, (const unsigned char *)words[i],
		                                strlen(words[i]) + 1);
	(void)crypto_generichash_final(&state, hash, sizeof(hash));
	(void)sodium_bin2hex(ret, MODEL_CREDENTIAL_SIZE, hash, sizeof(hash));
}

void models_credential(const struct declared_model *m, char ret[MODEL_CREDENTIAL_SIZE])
{
	const char *const words[] = { m->at.url, m->at.key_file };

	hash_words(words, ARRAY_LEN(words), ret);
}

void models_origin(const struct declared_model *m, char ret[MODEL_CREDENTIAL_SIZE])
{
	const char *const words[] = { m->at.url, m->at.key_file, dialect_name(m->dialect),
		                      m->model };

	hash_words(words, ARRAY_LEN(words), ret);
}

#define NANO_PER_MICRO 1000

/* A price per million tokens is one of millionths per token. */
int64_t models_cost(const struct declared_model *m, const struct usage *usage)
{
	uint64_t cached = usage->cached < usage->input ? usage->cached : usage->input;
	double price = m->cached_price < 0 ? m->input_price : m->cached_price, cost;

	if (m->input_price < 0)
		return -1;
	cost = (double)(usage->input - cached) * m->input_price + (double)cached * price +
	       (double)usage->output * m->output_price;
	return cost < COST_MAX / NANO_PER_MICRO ? (int64_t)(cost * NANO_PER_MICRO + 0.5)
	                                        : (int64_t)COST_MAX;
}

void models_free(struct models **m)
{
	free(*m);
	*m = NULL;
}
