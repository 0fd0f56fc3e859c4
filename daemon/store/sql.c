#include "daemon/store/sql.h"

#include "common/attr.h"
#include "sql_files.h" /* generated from sql/ */

const char *sql_bootstrap_create(void)
{
	return embedded_bootstrap[0].text;
}

const char *sql_bootstrap_update(void)
{
	return embedded_bootstrap[1].text;
}

const char *sql_bootstrap_guard(void)
{
	return embedded_bootstrap[2].text;
}

struct sql_list sql_control(void)
{
	return (struct sql_list){ embedded_control, ARRAY_LEN(embedded_control) };
}

struct sql_list sql_tenant(void)
{
	return (struct sql_list){ embedded_tenant, ARRAY_LEN(embedded_tenant) };
}
