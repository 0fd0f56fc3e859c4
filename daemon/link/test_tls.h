/* test_tls.h - authorities and certificates for a test, thrown away with it. */
#ifndef DAEMON_LINK_TEST_TLS_H
#define DAEMON_LINK_TEST_TLS_H

#include "common/test.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <sys/stat.h>

#define DAY 86400L

struct authority {
	EVP_PKEY *key;
	X509 *cert;
};

/* What a certificate says. */
struct wanted {
	const char *name; /* of its subject */
	const char *alternatives;
	long from, until; /* seconds from now */
};

static inline void extend(X509 *cert, X509 *issuer, int kind, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *one;

	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	one = X509V3_EXT_conf_nid(NULL, &ctx, kind, value);
	assert_non_null(one);
	assert_int_equal(X509_add_ext(cert, one, -1), 1);
	X509_EXTENSION_free(one);
}

/* Signed by an authority; NULL = by itself. */
static inline X509 *new_certificate(EVP_PKEY *key, const struct wanted *w,
                                    const struct authority *by)
{
	static long serial;
	X509 *cert = X509_new();
	X509_NAME *name = X509_get_subject_name(cert);

	X509_set_version(cert, X509_VERSION_3);
	ASN1_INTEGER_set(X509_get_serialNumber(cert), ++serial);
	X509_gmtime_adj(X509_getm_notBefore(cert), w->from);
	X509_gmtime_adj(X509_getm_notAfter(cert), w->until);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)w->name, -1, -1,
	                           0);
	X509_set_issuer_name(cert, by ? X509_get_subject_name(by->cert) : name);
	X509_set_pubkey(cert, key);
	if (!by)
		extend(cert, cert, NID_basic_constraints, "critical,CA:TRUE");
	if (w->alternatives)
		extend(cert, by ? by->cert : cert, NID_subject_alt_name, w->alternatives);
	assert_true(X509_sign(cert, by ? by->key : key, EVP_sha256()) > 0);
	return cert;
}

static inline struct authority new_authority(const char *name)
{
	const struct wanted w = { .name = name, .from = -DAY, .until = DAY };
	struct authority a = { .key = EVP_EC_gen("P-256") };

	assert_non_null(a.key);
	a.cert = new_certificate(a.key, &w, NULL);
	return a;
}

static inline void free_authority(struct authority *a)
{
	EVP_PKEY_free(a->key);
	X509_free(a->cert);
}

/* Either may be NULL.  Nobody else may read it: it may hold a key. */
static inline void write_pem(const char *path, X509 *cert, EVP_PKEY *key)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_int_equal(chmod(path, S_IRUSR | S_IWUSR), 0);
	if (cert)
		assert_int_equal(PEM_write_X509(f, cert), 1);
	if (key)
		assert_int_equal(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL), 1);
	assert_int_equal(fclose(f), 0);
}

#endif
