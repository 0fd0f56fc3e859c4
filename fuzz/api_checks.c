#include "fuzz/api.h"

#include "fuzz/fuzz.h"

#include "common/utf8.h"
#include "daemon/api/api.h"
#include "daemon/setup/repository.h"

void check_id(const struct uuid *id)
{
	demand(uuid_valid(id->text, strlen(id->text)));
}

void check_text(const char *text, size_t max)
{
	demand(!text || (strlen(text) <= max && utf8_valid(text, strlen(text))));
}

/* A place below /workspace, by its letters alone. */
void check_cwd(const char *cwd)
{
	size_t len = strlen(cwd);

	check_text(cwd, SESSION_CWD_MAX);
	demand(strncmp(cwd, "/workspace", 10) == 0 && (!cwd[10] || cwd[10] == '/'));
	demand(!strstr(cwd, "//") && !strstr(cwd, "/./") && !strstr(cwd, "/../"));
	demand(cwd[len - 1] != '/' && strcmp(cwd + len - 2, "/.") != 0);
	demand(len < 3 || strcmp(cwd + len - 3, "/..") != 0);
}

void check_limit(size_t limit)
{
	const char *text = target_value(&given.query, "limit");

	demand(limit >= 1 && limit <= 100 && limit == (text ? strtoul(text, NULL, 10) : 50));
}

/* The cursor that a page gives for that row is the one that came. */
void check_after(uint64_t ms, const struct uuid *id)
{
	auto_json struct json *page = json_new_object();
	const char *text = target_value(&given.query, "cursor");

	check_id(id);
	api_put_keyset(page, true, ms, id);
	demand(text && strcmp(json_str(json_get(page, "nextCursor")), text) == 0);
}

/* Sent twice, a request is known again. */
void check_key(const struct client_request *key)
{
	if (!key)
		return;
	check_id(&key->id);
	demand(!given.keyed || memcmp(given.digest, key->digest, sizeof(given.digest)) == 0);
	memcpy(given.digest, key->digest, sizeof(given.digest));
	given.keyed = true;
}

void check_harness(const char *text)
{
	auto_json struct json *command = NULL;
	struct err e = ERR_INIT;

	if (!*text)
		return;
	check_text(text, SESSION_HARNESS_MAX);
	demand(json_parse(text, strlen(text), &command, &e) == 0);
	demand(json_len(command) >= 1 && json_len(command) <= 64);
	for (size_t i = 0; i < json_len(command); i++)
		demand(json_str(json_at(command, i)));
}

void check_repository(const struct setup *s)
{
	demand(s->state == SETUP_NONE || s->state == SETUP_PENDING);
	if (s->state == SETUP_NONE)
		return;
	demand(!repository_url_fault(s->url, false));
	demand(!s->ref[0] || !repository_ref_fault(s->ref));
	demand(!s->branch[0] || !repository_ref_fault(s->branch));
	demand(strcmp(s->branch, "HEAD") != 0);
}
