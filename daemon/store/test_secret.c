#include "common/test.h"

#include "daemon/store/internal.h"
#include "daemon/store/secret.h"

#include <string.h>

#define ACME   "cr_0198000000007000800000000000ac3e"
#define GLOBEX "cr_019800000000700080000000091b0e5a"

static struct err e;

static void of_the_owner(void **state)
{
	struct secret *s = NULL;
	char password[SECRET_PASSWORD_SIZE];

	(void)state;
	assert_int_equal(secret_new("Geheim", &s, &e), 0);
	secret_password(s, OWNER_ROLE, password);
	assert_string_equal(password, "Geheim");
	secret_free(&s);
	assert_null(s);
	secret_free(&s);
}

/* 256 bits that follow from the owner's and from the name, and from nothing else. */
static void of_tenants(void **state)
{
	struct secret *first = NULL, *again = NULL, *other = NULL;
	char a[SECRET_PASSWORD_SIZE], b[SECRET_PASSWORD_SIZE];

	(void)state;
	assert_int_equal(secret_new("Geheim", &first, &e), 0);
	assert_int_equal(secret_new("Geheim", &again, &e), 0);
	assert_int_equal(secret_new("geheim", &other, &e), 0);
	secret_password(first, ACME, a);
	/* key = HMAC-SHA256("Geheim", purpose); HMAC-SHA256(key, name) */
	assert_string_equal(a, "eb738fedd5be632215520a3cbd5679654eaac2ec62b9e921e114e3da68d5fc5b");
	secret_password(again, ACME, b);
	assert_string_equal(a, b);
	secret_password(first, GLOBEX, b);
	assert_string_not_equal(a, b);
	secret_password(other, ACME, b);
	assert_string_not_equal(a, b);
	secret_free(&first);
	secret_free(&again);
	secret_free(&other);
}

static void bounds(void **state)
{
	char longest[SECRET_PASSWORD_SIZE + 1], password[SECRET_PASSWORD_SIZE];
	struct secret *s = NULL;

	(void)state;
	memset(longest, 'x', sizeof(longest));
	longest[SECRET_PASSWORD_SIZE] = '\0';
	assert_int_equal(secret_new(longest, &s, &e), -1);
	assert_non_null(strstr(e.text, "longer than 512 bytes"));
	longest[SECRET_PASSWORD_SIZE - 1] = '\0';
	assert_int_equal(secret_new(longest, &s, &e), 0);
	secret_password(s, OWNER_ROLE, password);
	assert_string_equal(password, longest);
	secret_wipe(password, sizeof(password));
	assert_int_equal(password[0], 0);
	assert_int_equal(password[SECRET_PASSWORD_SIZE - 2], 0);
	secret_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_the_owner),
		cmocka_unit_test(of_tenants),
		cmocka_unit_test(bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
