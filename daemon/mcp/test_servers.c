/* Files of MCP servers. */
#include "common/test_files.h"

#include "common/buf.h"
#include "daemon/mcp/servers.h"

#include <sys/stat.h>

static void gather(void *ctx, const char *line)
{
	buf_adds(ctx, line);
}

/* A file that declares so many of them. */
static void put_servers(const char *path, int n)
{
	auto_buf struct buf text = BUF_INIT(8192);

	buf_adds(&text, "{\"version\":1,\"servers\":[");
	for (int i = 0; i < n; i++)
		buf_addf(&text, "%s{\"id\":\"s%d\",\"url\":\"https://s/\"}", i ? "," : "", i);
	buf_adds(&text, "]}");
	put_bytes(path, text.data, text.len);
}

static void servers_are_bounded(void **state)
{
	auto_buf struct buf faults = BUF_INIT(1000);
	char dir[] = "/tmp/mcp-XXXXXX", path[64];
	struct mcp_servers *servers = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/mcp.json", dir);
	put_servers(path, COURIER_MCP_MAX);
	assert_int_equal(mcp_servers_load(path, NULL, &servers, gather, &faults, &e), 0);
	assert_int_equal(servers->n, COURIER_MCP_MAX);
	mcp_servers_free(&servers);
	put_servers(path, COURIER_MCP_MAX + 1);
	assert_int_equal(mcp_servers_load(path, NULL, &servers, gather, &faults, &e), -1);
	assert_string_equal(faults.data, "servers: 33 entries, must be 1 to 32");
	assert_non_null(strstr(e.text, path));
	assert_int_equal(remove_tree_at(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(servers_are_bounded),
	};

	return RUN_TESTS(tests);
}
