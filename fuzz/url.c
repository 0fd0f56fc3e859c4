/* The line that names an external database: taken whole, or refused without a word of it. */
#include "fuzz/fuzz.h"

#include "daemon/store/url.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct database_url url;
	struct err e = ERR_INIT;

	if (url_parse((const char *)data, size, &url, &e) < 0) {
		demand(e.code && e.text[0] && !strchr(e.text, '\n'));
		demand(!url.password[0]);
		return 0;
	}
	demand(url.port >= 1 && url.port <= 65535 && url.password[0] && url.host[0]);
	demand(url.local == (url.host[0] == '/'));
	demand(!url.local || (strlen(url.host) <= URL_SOCKET_MAX && !url.ca_file[0]));
	demand(!url.ca_file[0] || url.ca_file[0] == '/');
	url_wipe(&url);
	demand(!url.password[0]);
	return 0;
}
