#include "common/test.h"

#include "daemon/turn/seen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void take(struct seen *s, const char *id, size_t len)
{
	struct model_image image = { .type = "image/png", .data = malloc(len), .len = len };

	assert_non_null(image.data);
	seen_take(s, id, &image);
	assert_null(image.data);
}

static void images_go_with_their_results(void **state)
{
	struct item items[] = {
		{ .kind = ITEM_USER },
		{ .kind = ITEM_TOOL_CALL, .call_id = "a" },
		{ .kind = ITEM_TOOL_RESULT, .call_id = "a" },
		{ .kind = ITEM_TOOL_RESULT, .call_id = "none" },
		{ .kind = ITEM_TOOL_RESULT, .call_id = "b" },
	};
	const struct item_list list = { items, ARRAY_LEN(items) };
	struct model_image found[SEEN_MAX], none = { .data = NULL };
	struct seen s = { .count = 0 };

	(void)state;
	seen_take(&s, "c", &none);
	assert_int_equal(s.count, 0);
	take(&s, "b", 2);
	take(&s, "a", 1);
	take(&s, "gone", 3);
	assert_int_equal(seen_in(&s, &list, found), 2);
	assert_int_equal(found[0].item, 2);
	assert_int_equal(found[0].len, 1);
	assert_int_equal(found[1].item, 4);
	assert_int_equal(found[1].len, 2);
	seen_release(&s);
	assert_int_equal(seen_in(&s, &list, found), 0);
}

static void the_latest_are_kept(void **state)
{
	struct seen s = { .count = 0 };
	char id[12];

	(void)state;
	for (int i = 0; i <= SEEN_MAX; i++) {
		(void)snprintf(id, sizeof(id), "%d", i);
		take(&s, id, 1);
	}
	assert_int_equal(s.count, SEEN_MAX);
	assert_string_equal(s.at[0].call_id, "1");
	take(&s, "half", SEEN_BYTES - (SEEN_MAX - 1));
	assert_int_equal(s.count, SEEN_MAX);
	take(&s, "more", 7);
	assert_int_equal(s.count, 2);
	take(&s, "large", SEEN_BYTES + 1);
	assert_int_equal(s.count, 1);
	assert_string_equal(s.at[0].call_id, "large");
	seen_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(images_go_with_their_results),
		cmocka_unit_test(the_latest_are_kept),
	};

	return RUN_TESTS(tests);
}
