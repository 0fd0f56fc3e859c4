/* history.h - what happened: a session's history, and a turn's agents. */
#ifndef DAEMON_API_HISTORY_H
#define DAEMON_API_HISTORY_H

#include "daemon/http/http.h"

void history_show(const struct http_request *req, struct http_response *res, void *ctx);
void agents_list(const struct http_request *req, struct http_response *res, void *ctx);

#endif
