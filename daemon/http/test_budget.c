#include "common/test.h"

#include "common/attr.h"
#include "daemon/http/budget.h"

#define BODY ((size_t)100)

static struct budget b;
static struct uuid parties[BUDGET_BODIES + 2]; /* the first is that of nobody */

static int begin(void **state)
{
	(void)state;
	b = budget_of_bodies(BODY);
	for (size_t i = 1; i < ARRAY_LEN(parties); i++)
		parties[i] = uuid_new();
	return 0;
}

static int end(void **state)
{
	(void)state;
	assert_int_equal(b.used, 0);
	assert_null(b.parties); /* or memory of it stays */
	return 0;
}

static void half_for_a_party(void **state)
{
	(void)state;
	for (int i = 0; i < BUDGET_BODIES / 2; i++)
		assert_true(budget_take(&b, &parties[7], BODY));
	assert_false(budget_take(&b, &parties[7], 1));
	assert_true(budget_take(&b, &parties[7], 0));
	assert_true(budget_take(&b, &parties[8], 1));
	budget_give(&b, &parties[7], 1);
	assert_true(budget_take(&b, &parties[7], 1));
	budget_give(&b, &parties[8], 1);
	budget_give(&b, &parties[7], BUDGET_BODIES / 2 * BODY);
}

static void all_of_it(void **state)
{
	(void)state;
	for (size_t party = 1; party <= BUDGET_BODIES; party++)
		assert_true(budget_take(&b, &parties[party], BODY));
	assert_false(budget_take(&b, &parties[BUDGET_BODIES + 1], 1));
	assert_true(budget_take(&b, &parties[BUDGET_BODIES + 1], 0));
	budget_give(&b, &parties[3], BODY);
	assert_false(budget_take(&b, &parties[1], BODY + 1));
	assert_true(budget_take(&b, &parties[1], BODY));
	budget_give(&b, &parties[1], 2 * BODY);
	for (size_t party = BUDGET_BODIES; party > 1; party--)
		if (party != 3)
			budget_give(&b, &parties[party], BODY);
}

static void one_for_those_whom_nobody_knows(void **state)
{
	(void)state;
	assert_true(budget_take(&b, &parties[0], BODY));
	assert_false(budget_take(&b, &parties[0], 1));
	budget_give(&b, &parties[0], BODY);
	assert_false(budget_take(&b, &parties[0], BODY + 1));
	assert_false(budget_take(&b, &parties[0], SIZE_MAX));
	assert_false(budget_take(&b, &parties[1], SIZE_MAX));
	budget_give(&b, &parties[7], 0); /* who took nothing gives nothing */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(half_for_a_party, begin, end),
		cmocka_unit_test_setup_teardown(all_of_it, begin, end),
		cmocka_unit_test_setup_teardown(one_for_those_whom_nobody_knows, begin, end),
	};

	return RUN_TESTS(tests);
}
