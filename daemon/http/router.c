#include "daemon/http/exchange.h"

#include <string.h>

struct span {
	const char *at;
	size_t len;
};

/* Match whole segments; spans of the {placeholders} in ret. */
static bool match(const char *pattern, const char *path, struct span ret[HTTP_PARAMS_MAX])
{
	size_t n = 0;

	while (*pattern == '/' && *path == '/') {
		size_t want = strcspn(++pattern, "/"), have = strcspn(++path, "/");

		if (*pattern == '{' && have > 0 && n < HTTP_PARAMS_MAX)
			ret[n++] = (struct span){ path, have };
		else if (want != have || memcmp(pattern, path, want) != 0)
			return false;
		pattern += want;
		path += have;
	}
	return !*pattern && !*path;
}

static void cut_params(struct http_exchange *ex, const struct span spans[HTTP_PARAMS_MAX])
{
	char *out = ex->split;

	for (size_t i = 0; i < HTTP_PARAMS_MAX && spans[i].at; i++) {
		memcpy(out, spans[i].at, spans[i].len);
		out[spans[i].len] = '\0';
		ex->req.params[i] = out;
		out += spans[i].len + 1;
	}
}

static void add_allow(struct router_match *m, const char *method)
{
	size_t at = strlen(m->allow), len = strlen(method);

	if (at + len + 3 > sizeof(m->allow))
		return;
	if (at) {
		memcpy(m->allow + at, ", ", 2);
		at += 2;
	}
	memcpy(m->allow + at, method, len + 1);
}

/* HEAD is answered as GET, but not where a stream would have to be sent. */
static bool takes_method(const struct http_route *r, const char *method)
{
	if (strcmp(method, "HEAD") == 0)
		return strcmp(r->method, "GET") == 0 && !(r->flags & HTTP_STREAM);
	return strcmp(r->method, method) == 0;
}

void router_find(const struct http_route *routes, struct http_exchange *ex,
                 struct router_match *ret)
{
	*ret = (struct router_match){ .open = true };
	for (const struct http_route *r = routes; r->method; r++) {
		struct span spans[HTTP_PARAMS_MAX] = { 0 };

		if (!match(r->pattern, ex->req.path, spans))
			continue;
		ret->path_known = true;
		if (takes_method(r, ex->req.method)) {
			ret->route = r;
			ret->open = r->flags & HTTP_OPEN;
			cut_params(ex, spans);
			return;
		}
		ret->open = ret->open && (r->flags & HTTP_OPEN);
		add_allow(ret, r->method);
		if (takes_method(r, "HEAD"))
			add_allow(ret, "HEAD");
	}
	if (!ret->path_known)
		ret->open = false;
}
