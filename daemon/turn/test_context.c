#include "common/test.h"

#include "common/attr.h"
#include "daemon/turn/context.h"

#include <stdlib.h>
#include <string.h>

static struct err e;
static const struct uuid running = { "01980000-0000-7000-8000-00000000004e" };
static const struct uuid earlier = { "01980000-0000-7000-8000-0000000000ea" };

static void put_item(struct item *ret, enum item_kind kind, const char *text)
{
	auto_buf struct buf body = BUF_INIT(strlen(text));

	buf_adds(&body, text);
	*ret = (struct item){ .kind = kind, .body_len = strlen(text) };
	ret->body = buf_take(&body);
}

/* Turns of an input and an answer of so many bytes. */
static struct context session_of(size_t turns, size_t bytes)
{
	struct context c = { .known = true };
	auto_buf struct buf text = BUF_INIT(bytes);

	memset(buf_extend(&text, bytes), 'x', bytes);
	c.earlier.turns = calloc(turns + 1, sizeof(*c.earlier.turns));
	c.earlier.items.items = calloc(2 * turns + 1, sizeof(*c.earlier.items.items));
	assert_true(c.earlier.turns && c.earlier.items.items);
	for (size_t i = 0; i < turns; i++) {
		c.earlier.turns[i] = (struct earlier_turn){ .state = TURN_COMPLETED,
			                                    .first = 2 * i,
			                                    .count = 2 };
		put_item(&c.earlier.items.items[2 * i], ITEM_USER, "go");
		put_item(&c.earlier.items.items[2 * i + 1], ITEM_ASSISTANT, text.data);
	}
	c.earlier.turn_count = turns;
	c.earlier.items.count = 2 * turns;
	return c;
}

static struct transcript now(const char *input)
{
	struct transcript t = { .known = true };

	t.list.items = calloc(1, sizeof(*t.list.items));
	assert_non_null(t.list.items);
	put_item(&t.list.items[0], ITEM_USER, input);
	t.list.count = t.room = 1;
	return t;
}

static struct composed composed_of(const struct context *c, const struct transcript *t,
                                   size_t tokens)
{
	struct composed got;

	assert_int_equal(context_compose(c, &running, t, tokens, &got, &e), 0);
	return got;
}

static void earlier_turns_come_first(void **state)
{
	struct context c = session_of(2, 3);
	struct transcript t = now("now");
	struct composed got = composed_of(&c, &t, SIZE_MAX);

	(void)state;
	assert_int_equal(got.list.count, 5);
	assert_int_equal(got.input, 4);
	assert_string_equal(got.list.items[0].body, "go");
	assert_string_equal(got.list.items[3].body, "xxx");
	assert_string_equal(got.list.items[4].body, "now");
	assert_ptr_equal(got.list.items[1].body, c.earlier.items.items[1].body); /* no copies */
	composed_release(&got);
	transcript_forget(&t);
	context_release(&c);
}

/* How many turns there is room for: the oldest go first, and the model is told so. */
static void what_does_not_fit_is_left_out(void **state)
{
	struct context c = session_of(3, 3000);
	struct transcript t = now("now");
	size_t own = context_tokens(3) + 16, each = context_tokens(2) + context_tokens(3000) + 32;

	(void)state;
	for (size_t turns = 0; turns <= 3; turns++) {
		for (size_t less = 0; less <= 1; less++) {
			struct composed got = composed_of(&c, &t, own + turns * each - less);
			size_t fit = less && turns ? turns - 1 : turns;
			const char *said = strstr(got.list.items[0].body, "is left out here");

			assert_int_equal(got.input, 2 * fit);
			assert_int_equal(said != NULL, fit < 3);
			composed_release(&got);
		}
	}
	assert_string_equal(c.earlier.items.items[0].body, "go"); /* theirs are as they were */
	assert_string_equal(t.list.items[0].body, "now");
	transcript_forget(&t);
	context_release(&c);
}

static void what_the_store_left_out_is_told(void **state)
{
	struct context c = session_of(1, 3);
	struct transcript t = now("now");
	struct composed got;

	(void)state;
	c.earlier.cut = true;
	got = composed_of(&c, &t, SIZE_MAX);
	assert_non_null(strstr(got.list.items[0].body, "is left out here"));
	assert_string_equal(got.list.items[2].body, "now");
	composed_release(&got);
	transcript_forget(&t);
	context_release(&c);
}

static void a_bad_end_is_told(void **state)
{
	static const struct {
		enum turn_state state;
		const char *said;
	} cases[] = { { TURN_COMPLETED, NULL },
		      { TURN_CANCELLED, "cancelled by the user" },
		      { TURN_FAILED, "failed (some_code)" } };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		for (size_t room = 0; room <= 1; room++) { /* also when that turn is left out */
			struct context c = session_of(1, 3);
			struct transcript t = now("now");
			struct composed got;
			const struct item *input;

			assert_non_null(c.earlier.turns);
			c.earlier.turns[0].state = cases[i].state;
			memcpy(c.earlier.turns[0].error_code, "some_code", 10);
			got = composed_of(&c, &t, room ? SIZE_MAX : 0);
			input = &got.list.items[got.input];
			assert_int_equal(input->body_len, strlen(input->body));
			assert_string_equal(input->body + input->body_len - 3, "now");
			if (cases[i].said)
				assert_non_null(strstr(input->body, cases[i].said));
			else if (room)
				assert_string_equal(input->body, "now");
			composed_release(&got);
			transcript_forget(&t);
			context_release(&c);
		}
	}
}

static void put_summary(struct context *c, const struct uuid *turn, uint32_t through)
{
	c->summary = (struct summary){ .turn = *turn, .through = through, .len = 5 };
	c->summary.text = strdup("short");
}

/* Before the first input that is left, whichever that is. */
static void a_summary_comes_first(void **state)
{
	(void)state;
	for (size_t turns = 0; turns <= 1; turns++) {
		struct context c = session_of(turns, 3);
		struct transcript t = now("now");
		struct composed got;

		put_summary(&c, &earlier, 7);
		got = composed_of(&c, &t, SIZE_MAX);
		assert_int_equal(got.list.count, 2 * turns + 1);
		assert_non_null(strstr(got.list.items[0].body, "\nshort\n"));
		assert_non_null(strstr(got.list.items[0].body, turns ? "\n\ngo" : "\n\nnow"));
		composed_release(&got);
		transcript_forget(&t);
		context_release(&c);
	}
}

/* Of the turn that goes on, the input is told in any case. */
static void what_a_summary_covers_is_not_told(void **state)
{
	(void)state;
	for (uint32_t through = 0; through <= 4; through++) {
		struct context c = session_of(0, 0);
		struct transcript t = now("now");
		struct composed got;

		for (uint32_t i = 1; i <= 3; i++) {
			struct item item;

			put_item(&item, ITEM_ASSISTANT, i == 1 ? "a" : i == 2 ? "b" : "c");
			item.seq = i;
			transcript_add(&t, &item, 1);
		}
		put_summary(&c, &running, through);
		if (through == 4) {
			assert_int_equal(context_compose(&c, &running, &t, SIZE_MAX, &got, &e), -1);
		} else {
			got = composed_of(&c, &t, SIZE_MAX);
			assert_int_equal(got.list.count, 4 - through);
			assert_non_null(strstr(got.list.items[0].body, "now"));
			if (through < 3)
				assert_int_equal(got.list.items[1].seq, through + 1);
			composed_release(&got);
		}
		transcript_forget(&t);
		context_release(&c);
	}
}

static void the_room_of_a_window(void **state)
{
	const struct model ordinary = { .context_window = 1000, .max_output_tokens = 100 };
	const struct model greedy = { .context_window = 1000, .max_output_tokens = 900 };
	const struct model builtin = { .context_window = 0 };

	(void)state;
	assert_int_equal(context_room(&ordinary), 900);
	assert_int_equal(context_room(&greedy), 500);
	assert_true(context_room(&builtin) == SIZE_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(earlier_turns_come_first),
		cmocka_unit_test(what_does_not_fit_is_left_out),
		cmocka_unit_test(what_the_store_left_out_is_told),
		cmocka_unit_test(a_bad_end_is_told),
		cmocka_unit_test(a_summary_comes_first),
		cmocka_unit_test(what_a_summary_covers_is_not_told),
		cmocka_unit_test(the_room_of_a_window),
	};

	return RUN_TESTS(tests);
}
