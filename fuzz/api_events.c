#include "fuzz/api.h"

#include "fuzz/fuzz.h"

#include "daemon/api/api.h"
#include "daemon/setup/repository.h"
#include "daemon/turn/tell.h"

bool setups_allow_http(const struct setups *s)
{
	(void)s;
	return false;
}

int setups_take(struct setups *s, const struct uuid *tenant, struct setup_job **ret, struct err *e)
{
	(void)s;
	(void)ret;
	check_id(tenant);
	return given.choice & HAS_MODELS ? err_set(e, SETUPS_FULL, "too many") : 0;
}

void setups_drop(struct setup_job **at)
{
	*at = NULL;
}

void setups_run(struct setup_job **at, const struct uuid *session,
                const struct setup_credential *credential)
{
	(void)at;
	check_id(session);
	if (!credential)
		return;
	demand(!repository_secret_fault(credential->username, REPOSITORY_USERNAME_MAX));
	demand(!repository_secret_fault(credential->password, REPOSITORY_PASSWORD_MAX));
}

void setups_forget(struct setups *s, const struct uuid *tenant, const struct uuid *session)
{
	(void)s;
	check_id(tenant);
	check_id(session);
}

int setup_retry(struct store *s, const struct uuid *tenant, const struct uuid *session,
                bool private, struct err *e)
{
	(void)s;
	(void)private;
	check_id(tenant);
	check_id(session);
	return store_says(e);
}

unsigned int subscribed;

int bus_subscribe(struct bus *b, const struct uuid *tenant, const struct bus_wish *wish,
                  struct subscription **ret, struct err *e)
{
	(void)b;
	check_id(tenant);
	demand(wish->last_id >= -1);
	if (wish->turn)
		check_id(wish->turn);
	if (wish->session)
		check_id(wish->session);
	if (store_says(e))
		return -1;
	*ret = (struct subscription *)&subscribed;
	subscribed++;
	return 0;
}

void bus_unsubscribe(struct subscription *s)
{
	demand(s == (struct subscription *)&subscribed && subscribed-- == 1);
}

bool bus_has_end(struct subscription *s)
{
	(void)s;
	return given.choice & HAS_HARNESS;
}

int bus_next(struct subscription *s, const char **ret_data, size_t *ret_len)
{
	(void)s;
	*ret_data = "";
	*ret_len = 0;
	return 0;
}

int tell_again(struct store *s, const struct uuid *tenant, const struct turn *t, struct buf *out,
               struct err *e)
{
	(void)s;
	check_id(tenant);
	check_id(&t->id);
	buf_adds(out, "event: x\n\n");
	return store_says(e);
}

int store_ping(struct store *s, struct err *e)
{
	(void)s;
	return store_says(e);
}
