/*
 * The taking side is the one that faces the network.  It believes the launcher, and
 * checks all the same: what comes in decides who may become whom, and a mistake in the
 * making should end here and not there.
 */
#include "daemon/tenant/compiled.h"

#include "common/fd.h"
#include "daemon/tenant/registry_draft.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC "cloister registry 4"

#define ALL_MODELS UINT32_MAX

struct head {
	char magic[24];
	uint32_t tenants;
	uint32_t credentials; /* of all tenants, in their order, behind the tenants */
	uint32_t ids;         /* of models and MCP servers, likewise, behind the credentials */
};

struct tenant_row {
	struct uuid id;
	char name[TENANT_NAME_MAX + 1];
	uint32_t credentials;
	uint32_t models; /* or ALL_MODELS */
	uint32_t mcp;
	uint32_t approvals;
};

struct id_row {
	char id[TENANT_MODEL_MAX + 1];
};

struct credential_row {
	struct uuid id;
	unsigned char digest[32];
};

#define MOST                                                                                \
	(sizeof(struct head) +                                                              \
	 REGISTRY_MAX_TENANTS * (sizeof(struct tenant_row) +                                \
	                         REGISTRY_MAX_CREDENTIALS * sizeof(struct credential_row) + \
	                         sizeof(struct id_row) * 2 * TENANT_MODELS_MAX))

static size_t size_of(uint32_t tenants, uint32_t credentials, uint32_t ids)
{
	return sizeof(struct head) + tenants * sizeof(struct tenant_row) +
	       credentials * sizeof(struct credential_row) + ids * sizeof(struct id_row);
}

/* -- making ------------------------------------------------------------------------------ */

static void put_head(struct buf *out, const struct registry *r)
{
	struct head head = { .magic = MAGIC, .tenants = (uint32_t)r->count };

	for (size_t i = 0; i < r->count; i++) {
		head.credentials += (uint32_t)r->tenants[i].credential_count;
		head.ids += (uint32_t)(r->tenants[i].models.count + r->tenants[i].mcp.count);
	}
	buf_add(out, &head, sizeof(head));
}

static void put_tenant(struct buf *out, const struct tenant *t)
{
	struct tenant_row row = {
		.id = t->id,
		.credentials = (uint32_t)t->credential_count,
		.models = t->models.given ? (uint32_t)t->models.count : ALL_MODELS,
		.mcp = (uint32_t)t->mcp.count,
		.approvals = t->approvals,
	};

	memcpy(row.name, t->name, sizeof(row.name));
	buf_add(out, &row, sizeof(row));
}

static void put_credential(struct buf *out, const struct credential *c)
{
	struct credential_row row = { .id = c->id };

	memcpy(row.digest, c->digest, sizeof(row.digest));
	buf_add(out, &row, sizeof(row));
}

static void put_ids(struct buf *out, const struct model_list *list)
{
	buf_add(out, list->ids, list->count * sizeof(struct id_row));
}

int registry_compile(const struct registry *r, struct err *e)
{
	const unsigned int seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
	auto_close int fd = memfd_create("registry", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	auto_buf struct buf out = BUF_INIT(MOST);

	if (fd < 0)
		return err_errno(e, "make a memory file for the registry");
	put_head(&out, r);
	for (size_t i = 0; i < r->count; i++)
		put_tenant(&out, &r->tenants[i]);
	for (size_t i = 0; i < r->count; i++)
		for (size_t k = 0; k < r->tenants[i].credential_count; k++)
			put_credential(&out, &r->tenants[i].credentials[k]);
	for (size_t i = 0; i < r->count; i++) {
		put_ids(&out, &r->tenants[i].models);
		put_ids(&out, &r->tenants[i].mcp);
	}
	if (buf_failed(&out))
		return err_set(e, ENOMEM, "no memory for the registry");
	if (fd_write_all(fd, out.data, out.len, e) < 0)
		return err_wrap(e, "write the registry");
	if (fcntl(fd, F_ADD_SEALS, seals) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return err_errno(e, "seal the registry");
	return fd_take(&fd);
}

/* -- taking ------------------------------------------------------------------------------ */

static int refuse(struct err *e, const char *what)
{
	return err_set(e, EPROTO, "compiled registry: %s", what);
}

static bool id_good(const struct uuid *id)
{
	return memchr(id->text, '\0', sizeof(id->text)) == id->text + UUID_TEXT_LEN &&
	       uuid_valid(id->text, UUID_TEXT_LEN) && !registry_id_reserved(id->text);
}

/* What of the head's counts no tenant has taken yet. */
struct left {
	uint32_t credentials;
	uint32_t ids;
};

static int take_id_count(struct model_list *list, uint32_t count, struct left *left, struct err *e)
{
	if (count > TENANT_MODELS_MAX || count > left->ids)
		return refuse(e, "the number of a tenant's models or MCP servers is out of bounds");
	left->ids -= count;
	list->given = true;
	list->count = count;
	list->ids = draft_alloc(count, sizeof(*list->ids));
	return 0;
}

static int take_tenant(struct tenant *t, const struct tenant_row *row, struct left *left,
                       struct err *e)
{
	if (!id_good(&row->id))
		return refuse(e, "the id of a tenant is none");
	if (!memchr(row->name, '\0', sizeof(row->name)) || !registry_name_valid(row->name))
		return refuse(e, "the name of a tenant is none");
	if (row->credentials < 1 || row->credentials > REGISTRY_MAX_CREDENTIALS ||
	    row->credentials > left->credentials)
		return refuse(e, "the number of a tenant's credentials is out of bounds");
	if (row->approvals >= TENANT_APPROVALS)
		return refuse(e, "who is asked before a tenant's calls is unknown");
	left->credentials -= row->credentials;
	t->approvals = (enum tenant_approvals)row->approvals;
	t->id = row->id;
	memcpy(t->name, row->name, sizeof(t->name));
	t->credentials = draft_alloc(row->credentials, sizeof(*t->credentials));
	t->credential_count = row->credentials;
	if (row->models != ALL_MODELS && take_id_count(&t->models, row->models, left, e) < 0)
		return -1;
	return take_id_count(&t->mcp, row->mcp, left, e);
}

static int take_tenants(struct registry *r, const struct head *head, const char *at, struct err *e)
{
	struct left left = { head->credentials, head->ids };

	r->tenants = draft_alloc(head->tenants, sizeof(*r->tenants));
	while (r->count < head->tenants) {
		struct tenant_row row;

		memcpy(&row, at, sizeof(row));
		at += sizeof(row);
		r->tenants[r->count].index = r->count;
		r->count++;
		if (take_tenant(&r->tenants[r->count - 1], &row, &left, e) < 0)
			return -1;
	}
	return left.credentials || left.ids
	               ? refuse(e, "it has more credentials or ids than its tenants")
	               : 0;
}

static int take_credentials(struct registry *r, const char *at, struct err *e)
{
	for (size_t i = 0; i < r->count; i++) {
		for (size_t k = 0; k < r->tenants[i].credential_count; k++) {
			struct credential *c = &r->tenants[i].credentials[k];
			struct credential_row row;

			memcpy(&row, at, sizeof(row));
			at += sizeof(row);
			if (!id_good(&row.id))
				return refuse(e, "the id of a credential is none");
			c->id = row.id;
			memcpy(c->digest, row.digest, sizeof(c->digest));
		}
	}
	return 0;
}

static int take_ids(struct model_list *list, bool (*valid)(const char *id), const char **at,
                    struct err *e)
{
	for (size_t k = 0; k < list->count; k++) {
		char *id = list->ids[k];

		memcpy(id, *at, sizeof(struct id_row));
		*at += sizeof(struct id_row);
		if (!memchr(id, '\0', sizeof(struct id_row)) || !valid(id))
			return refuse(e, "the id of a model or an MCP server is none");
	}
	return 0;
}

static int take_all_ids(struct registry *r, const char *at, struct err *e)
{
	for (size_t i = 0; i < r->count; i++)
		if (take_ids(&r->tenants[i].models, registry_model_valid, &at, e) < 0 ||
		    take_ids(&r->tenants[i].mcp, registry_mcp_valid, &at, e) < 0)
			return -1;
	return 0;
}

static int check_head(const struct head *head, size_t len, struct err *e)
{
	if (memcmp(head->magic, MAGIC, sizeof(MAGIC)) != 0)
		return refuse(e, "not one");
	if (head->tenants < 1 || head->tenants > REGISTRY_MAX_TENANTS)
		return refuse(e, "the number of tenants is out of bounds");
	if (head->credentials > head->tenants * REGISTRY_MAX_CREDENTIALS ||
	    head->ids > head->tenants * 2 * TENANT_MODELS_MAX ||
	    len != size_of(head->tenants, head->credentials, head->ids))
		return refuse(e, "its size is not what its counts say");
	return 0;
}

static int take(struct registry *r, const char *data, size_t len, struct err *e)
{
	struct head head;

	if (len < sizeof(head))
		return refuse(e, "too short");
	memcpy(&head, data, sizeof(head));
	if (check_head(&head, len, e) < 0 || take_tenants(r, &head, data + sizeof(head), e) < 0 ||
	    take_credentials(r, data + size_of(head.tenants, 0, 0), e) < 0 ||
	    take_all_ids(r, data + size_of(head.tenants, head.credentials, 0), e) < 0)
		return -1;
	registry_index(r);
	return registry_unique(r) ? 0 : refuse(e, "an id or a token stands there twice");
}

static void release(struct registry **r)
{
	registry_free(r);
}

int registry_take(int fd, struct registry **ret, struct err *e)
{
	__attribute__((cleanup(release))) struct registry *r = draft_alloc(1, sizeof(*r));
	auto_free char *data = NULL;
	size_t len;
	int rc;

	if (fd_read_all(fd, MOST, &data, &len, e) < 0)
		return err_wrap(e, "compiled registry");
	rc = take(r, data, len, e);
	sodium_memzero(data, len);
	if (rc == 0)
		*ret = mem_take(&r);
	return rc;
}
