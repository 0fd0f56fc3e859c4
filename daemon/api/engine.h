/* engine.h - what drives the turns of a session, in the API's words. */
#ifndef DAEMON_API_ENGINE_H
#define DAEMON_API_ENGINE_H

#include "daemon/api/api.h"

/* Read the value of "engine" (NULL = the default) into s; false with the answer made. */
bool engine_read(const struct http_request *req, struct http_response *res,
                 const struct json *engine, struct session *s);

struct json *engine_json(const struct session *s);

/* The lines that a harness said in a turn. */
void lines_list(const struct http_request *req, struct http_response *res, void *ctx);

#endif
