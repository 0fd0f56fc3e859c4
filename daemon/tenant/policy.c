/*
 * What stands here becomes packet rules and cgroup limits, so nothing is rounded,
 * completed or understood in two ways: one spelling for each value, and a fault for
 * every other.
 */
#include "daemon/tenant/policy.h"

#include "common/buf.h"
#include "common/fd.h"
#include "daemon/tenant/registry_draft.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define PATH_SIZE    128
#define ALLOW_LENGTH 256 /* bytes: a network and EGRESS_PORTS_MAX ranges */
#define PORT_MAX     65535

static const char *const mode_names[] = {
	[EGRESS_PUBLIC] = "public",
	[EGRESS_NONE] = "none",
	[EGRESS_ALLOW] = "allow",
};

const char *egress_mode_name(enum egress_mode mode)
{
	return mode_names[mode];
}

/* -- addresses ------------------------------------------------------------------------- */

/* Dotted decimal without leading zeros: exactly what inet_ntop(3) writes. */
static bool read_address(const char *text, size_t len, uint32_t *ret)
{
	char copy[INET_ADDRSTRLEN], again[INET_ADDRSTRLEN];
	struct in_addr address;

	if (len >= sizeof(copy))
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	if (inet_pton(AF_INET, copy, &address) != 1 ||
	    !inet_ntop(AF_INET, &address, again, sizeof(again)) || strcmp(copy, again) != 0)
		return false;
	*ret = ntohl(address.s_addr);
	return true;
}

/* Digits without sign and leading zero, up to max; the rest begins at *ret_rest. */
static bool read_digits(const char *text, unsigned int max, unsigned int *ret,
                        const char **ret_rest)
{
	size_t n = strspn(text, "0123456789");
	unsigned int value = 0;

	if (n < 1 || n > 5 || (*text == '0' && n > 1))
		return false;
	for (size_t i = 0; i < n; i++)
		value = value * 10 + (unsigned int)(text[i] - '0');
	*ret = value;
	*ret_rest = text + n;
	return value <= max;
}

int policy_cidr(const char *text, struct err *e)
{
	const char *slash = strchr(text, '/'), *rest;
	char network[INET_ADDRSTRLEN];
	unsigned int bits;
	uint32_t address, mask;

	if (!slash || !read_address(text, (size_t)(slash - text), &address) ||
	    !read_digits(slash + 1, 32, &bits, &rest) || *rest)
		return err_set(e, EINVAL, "must be an IPv4 network such as 198.51.100.0/24");
	mask = bits ? UINT32_MAX << (32 - bits) : 0;
	if (address & ~mask) {
		const struct in_addr whole = { htonl(address & mask) };

		(void)inet_ntop(AF_INET, &whole, network, sizeof(network));
		return err_set(e, EINVAL, "has bits below its prefix; the network is %s/%u",
		               network, bits);
	}
	return 0;
}

/* -- what is allowed ------------------------------------------------------------------- */

/* A number, or "LOW-HIGH".  NULL, or the fault. */
static const char *read_ports(const struct json *v, unsigned int *ret_low, unsigned int *ret_high)
{
	static const char *const wrong =
		"must be a port from 1 to 65535, or a range such as \"8000-8100\"";
	const char *text = json_str(v), *rest;

	if (json_type(v) == JSON_INT) {
		if (json_int(v) < 1 || json_int(v) > PORT_MAX)
			return wrong;
		*ret_low = *ret_high = (unsigned int)json_int(v);
		return NULL;
	}
	if (!text || !read_digits(text, PORT_MAX, ret_low, &rest) || *rest != '-' ||
	    !read_digits(rest + 1, PORT_MAX, ret_high, &rest) || *rest || *ret_low < 1)
		return wrong;
	return *ret_low > *ret_high ? "the range ends before it begins" : NULL;
}

static void read_port_list(const struct json *list, const char *path, struct json_faults *f,
                           struct buf *text)
{
	size_t n = json_len(list);

	if (n < 1 || n > EGRESS_PORTS_MAX) {
		json_fault(f, path, "%zu entries, must be 1 to %d", n, EGRESS_PORTS_MAX);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		unsigned int low = 0, high = 0;
		const char *fault = read_ports(json_at(list, i), &low, &high);
		char at[PATH_SIZE];

		json_path_index(at, sizeof(at), path, i);
		if (fault)
			json_fault(f, at, "%s", fault);
		buf_addf(text, "%c%u", i ? ',' : ':', low);
		if (high != low)
			buf_addf(text, "-%u", high);
	}
}

/* The text for the runner, or NULL after a fault. */
static char *read_entry(const struct json *v, const char *path, struct json_faults *f)
{
	static const struct json_field fields[] = {
		{ "cidr", JSON_STRING, .required = true },
		{ "ports", JSON_ARRAY },
	};
	auto_buf struct buf text = BUF_INIT(ALLOW_LENGTH);
	const struct json *found[ARRAY_LEN(fields)];
	struct err e = ERR_INIT;
	size_t before = f->count;
	char at[PATH_SIZE];

	(void)json_fields(v, path, fields, ARRAY_LEN(fields), found, f);
	json_path_field(at, sizeof(at), path, "cidr");
	if (found[0] && policy_cidr(json_str(found[0]), &e) < 0)
		json_fault(f, at, "%s", e.text);
	if (f->count == before)
		buf_adds(&text, json_str(found[0]));
	json_path_field(at, sizeof(at), path, "ports");
	if (found[1])
		read_port_list(found[1], at, f, &text);
	return f->count == before ? draft_copy(text.data) : NULL;
}

static void read_allow(const struct json *list, const char *path, struct json_faults *f,
                       struct egress *ret)
{
	size_t n = json_len(list);

	if (ret->mode == EGRESS_ALLOW && !list)
		json_fault(f, path, "required with mode \"allow\"");
	if (!list)
		return;
	if (ret->mode != EGRESS_ALLOW) {
		json_fault(f, path, "only with mode \"allow\"");
		return;
	}
	if (n > EGRESS_ALLOW_MAX) {
		json_fault(f, path, "%zu entries, at most %d", n, EGRESS_ALLOW_MAX);
		return;
	}
	ret->allow = draft_alloc(n, sizeof(*ret->allow));
	for (size_t i = 0; i < n; i++) {
		char at[PATH_SIZE];

		json_path_index(at, sizeof(at), path, i);
		ret->allow[ret->allow_count] = read_entry(json_at(list, i), at, f);
		if (ret->allow[ret->allow_count])
			ret->allow_count++;
	}
}

/* -- resolvers ------------------------------------------------------------------------- */

/* NULL, or the fault. */
static const char *check_resolver(const char *text, uint32_t *ret)
{
	uint32_t first;

	if (!text || !read_address(text, strlen(text), ret))
		return "must be an IPv4 address";
	first = *ret >> 24;
	if (first == 0 || first == 127 || first >= 224)
		return "no resolver can have this address";
	return NULL;
}

static void read_resolvers(const struct json *list, const char *path, struct json_faults *f,
                           char ret[EGRESS_DNS_SIZE])
{
	uint32_t seen[EGRESS_RESOLVERS_MAX] = { 0 };
	size_t n = json_len(list), len = 0;

	if (n < 1 || n > EGRESS_RESOLVERS_MAX) {
		json_fault(f, path, "%zu entries, must be 1 to %d", n, EGRESS_RESOLVERS_MAX);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const char *text = json_str(json_at(list, i));
		const char *fault = check_resolver(text, &seen[i]);
		char at[PATH_SIZE];

		for (size_t k = 0; !fault && k < i; k++)
			if (seen[k] == seen[i])
				fault = "stands twice";
		json_path_index(at, sizeof(at), path, i);
		if (fault)
			json_fault(f, at, "%s", fault);
		else
			len += (size_t)snprintf(ret + len, EGRESS_DNS_SIZE - len, "%s%s",
			                        len ? "," : "", text);
	}
}

static void read_dns(const struct json *v, const char *path, struct json_faults *f,
                     struct egress *ret)
{
	const char *word = json_str(v);

	(void)snprintf(ret->dns, sizeof(ret->dns), "off");
	if (!v)
		return;
	if (ret->mode == EGRESS_NONE && (!word || strcmp(word, "off") != 0))
		json_fault(f, path, "must be \"off\" with mode \"none\"");
	else if (json_type(v) == JSON_ARRAY)
		read_resolvers(v, path, f, ret->dns);
	else if (word && (strcmp(word, "off") == 0 || strcmp(word, "host") == 0))
		(void)snprintf(ret->dns, sizeof(ret->dns), "%s", word);
	else
		json_fault(f, path, "must be \"off\", \"host\" or a list of addresses");
}

/* -- the two parts --------------------------------------------------------------------- */

static bool read_mode(const struct json *v, enum egress_mode *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(mode_names); i++) {
		if (strcmp(json_str(v), mode_names[i]) == 0) {
			*ret = (enum egress_mode)i;
			return true;
		}
	}
	return false;
}

void egress_read(const struct json *v, const char *path, struct json_faults *f, struct egress *ret)
{
	static const struct json_field fields[] = {
		{ "mode", JSON_STRING, .required = true },
		{ "allow", JSON_ARRAY },
		{ "dns", JSON_ANY },
	};
	const struct json *found[ARRAY_LEN(fields)];
	char at[PATH_SIZE];

	*ret = (struct egress){ .mode = EGRESS_PUBLIC, .dns = "off" };
	if (!v)
		return;
	ret->given = true;
	(void)json_fields(v, path, fields, ARRAY_LEN(fields), found, f);
	if (!found[0])
		return;
	if (!read_mode(found[0], &ret->mode)) {
		json_path_field(at, sizeof(at), path, "mode");
		json_fault(f, at, "must be \"public\", \"none\" or \"allow\"");
		return;
	}
	json_path_field(at, sizeof(at), path, "allow");
	read_allow(found[1], at, f, ret);
	json_path_field(at, sizeof(at), path, "dns");
	read_dns(found[2], at, f, ret);
}

void egress_release(struct egress *e)
{
	for (size_t i = 0; i < e->allow_count; i++)
		free(e->allow[i]);
	free(e->allow);
	*e = (struct egress){ .mode = EGRESS_NONE };
}

/* A whole number in range, or a fault; *ret keeps its default when v is absent. */
static uint64_t read_whole(const struct json *v, const char *path, struct json_faults *f,
                           const int64_t range[3])
{
	if (!v)
		return (uint64_t)range[2];
	if (json_int(v) < range[0] || json_int(v) > range[1])
		json_fault(f, path, "must be %" PRId64 " to %" PRId64, range[0], range[1]);
	return (uint64_t)json_int(v);
}

static unsigned int read_cpus(const struct json *v, const char *path, struct json_faults *f)
{
	double cpus = json_type(v) == JSON_INT ? (double)json_int(v) : json_double(v);
	unsigned int hundredths = 0;
	double rest = 1;

	if (!v)
		return LIMITS_CPUS_DEFAULT;
	if (cpus > 0 && cpus < LIMITS_CPUS_MAX) {
		hundredths = (unsigned int)(cpus * 100 + 0.5);
		rest = cpus * 100 - hundredths;
	}
	/* 0.29 * 100 is not quite 29. */
	if (rest > 1e-6 || rest < -1e-6 || hundredths < LIMITS_CPUS_MIN ||
	    hundredths > LIMITS_CPUS_MAX)
		json_fault(f, path, "must be a number from 0.1 to 64 in hundredths");
	return hundredths;
}

void limits_read(const struct json *v, const char *path, struct json_faults *f, struct limits *ret)
{
	static const struct json_field fields[] = {
		{ "cpus", JSON_ANY },
		{ "memoryMiB", JSON_INT },
		{ "processes", JSON_INT },
	};
	static const int64_t mib[] = { LIMITS_MIB_MIN, LIMITS_MIB_MAX, LIMITS_MIB_DEFAULT };
	static const int64_t processes[] = { LIMITS_PROCESSES_MIN, LIMITS_PROCESSES_MAX,
		                             LIMITS_PROCESSES_DEFAULT };
	const struct json *found[ARRAY_LEN(fields)] = { NULL };
	char at[PATH_SIZE];

	ret->given = v != NULL;
	if (v)
		(void)json_fields(v, path, fields, ARRAY_LEN(fields), found, f);
	json_path_field(at, sizeof(at), path, "cpus");
	ret->cpus = read_cpus(found[0], at, f);
	json_path_field(at, sizeof(at), path, "memoryMiB");
	ret->memory = read_whole(found[1], at, f, mib) << 20;
	json_path_field(at, sizeof(at), path, "processes");
	ret->processes = (unsigned int)read_whole(found[2], at, f, processes);
}
