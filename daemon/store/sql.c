#include "daemon/store/sql.h"

#include "common/attr.h"
#include "sql_files.h" /* generated from sql/ */

const char *sql_roles(void)
{
	return embedded_bootstrap[0].text;
}

const char *sql_template(void)
{
	return embedded_bootstrap[1].text;
}

const char *sql_guard(void)
{
	return embedded_bootstrap[2].text;
}

const char *sql_privileged(void)
{
	return embedded_bootstrap[3].text;
}

const char *sql_managed_make(void)
{
	return embedded_managed[0].text;
}

const char *sql_managed_update(void)
{
	return embedded_managed[1].text;
}

void sql_script(FILE *out)
{
	const char *const parts[] = {
		embedded_external[0].text,
		sql_roles(),
		/* in the template */
		embedded_external[1].text,
		sql_guard(),
		sql_template(),
		/* in the control database */
		embedded_external[2].text,
		sql_guard(),
		sql_privileged(),
		embedded_external[3].text,
	};

	_Static_assert(ARRAY_LEN(embedded_external) == 4, "each has its place");
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		(void)fputs(parts[i], out);
}

struct sql_list sql_control(void)
{
	return (struct sql_list){ embedded_control, ARRAY_LEN(embedded_control) };
}

struct sql_list sql_tenant(void)
{
	return (struct sql_list){ embedded_tenant, ARRAY_LEN(embedded_tenant) };
}
