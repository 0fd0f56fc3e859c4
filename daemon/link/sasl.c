#include "daemon/link/sasl.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PLUS         "SCRAM-SHA-256-PLUS"
#define HEAD         5  /* type and length */
#define AUTH_HEAD    9  /* and what is asked for */
#define NAME_MAX_    20 /* of a mechanism, by RFC 4422 */
#define ROUND_DIGITS 9  /* fit into any number */
#define NAME_CHARS   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

/* Of AuthenticationRequest, as PostgreSQL numbers them. */
enum {
	ASK_NOTHING = 0,
	ASK_CLEARTEXT = 3,
	ASK_MD5 = 5,
	ASK_SASL = 10,
	ASK_SASL_CONTINUE = 11,
	ASK_SASL_FINAL = 12,
};

static uint32_t number(const uint8_t *at)
{
	return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void put_number(uint8_t *at, uint32_t n)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(n >> (24 - 8 * i));
}

static enum sasl_verdict malformed(const char *what, struct err *e)
{
	(void)err_set(e, EPROTO, "%s: is a PostgreSQL there?", what);
	return SASL_REFUSE;
}

static enum sasl_verdict refuse(uint32_t code, struct err *e)
{
	static const char remedy[] = "let the database's roles log in by scram-sha-256 in its "
				     "pg_hba.conf, and set their passwords again";

	if (code == ASK_NOTHING)
		(void)err_set(e, EACCES, "it lets in whoever comes; %s", remedy);
	else if (code == ASK_CLEARTEXT)
		(void)err_set(e, EACCES, "it asks for the password in cleartext; %s", remedy);
	else if (code == ASK_MD5)
		(void)err_set(e, EACCES, "it asks for the password by MD5; %s", remedy);
	else
		/* Without the number: each would be another line of the log. */
		(void)err_set(e, EACCES, "it asks for a login of another kind; %s", remedy);
	return SASL_REFUSE;
}

/* The name at text, of at most max bytes with its NUL; 0 when it is none, or the empty one. */
static size_t name_length(const uint8_t *text, size_t max)
{
	size_t n = strnlen((const char *)text, max);

	if (n == max || n > NAME_MAX_ || strspn((const char *)text, NAME_CHARS) != n)
		return 0;
	return n;
}

/* Names that end with a NUL each, and an empty one.  SIZE_MAX when they are malformed. */
static size_t without_plus(uint8_t *names, size_t size)
{
	size_t at = 0, kept = 0;

	while (at + 1 < size) {
		size_t n = name_length(names + at, size - at);

		if (!n)
			return SIZE_MAX;
		n++;
		if (n != sizeof(PLUS) || memcmp(names + at, PLUS, n) != 0) {
			memmove(names + kept, names + at, n);
			kept += n;
		}
		at += n;
	}
	if (at + 1 != size || names[at])
		return SIZE_MAX;
	names[kept] = 0;
	return kept + 1;
}

static enum sasl_verdict rewrite(uint8_t *data, size_t *len, size_t *message, struct err *e)
{
	size_t was = *message - AUTH_HEAD;
	size_t now = without_plus(data + AUTH_HEAD, was);

	if (now == SIZE_MAX)
		return malformed("what it offers for a login is malformed", e);
	memmove(data + AUTH_HEAD + now, data + *message, *len - *message);
	*len -= was - now;
	*message = AUTH_HEAD + now;
	put_number(data + 1, (uint32_t)*message - 1);
	return SASL_PASS;
}

/* Past "letter=value" and what ends it, a comma or the text; NULL when that is not there. */
static const char *after(const char *text, char letter)
{
	return text[0] == letter && text[1] == '=' ? text + strcspn(text, ",") : NULL;
}

/* The rounds of hashing that r=...,s=...,i=ROUNDS asks for; 0 when it is malformed. */
static unsigned long rounds(const char *text)
{
	const char *salt = after(text, 'r');
	const char *count = salt && *salt ? after(salt + 1, 's') : NULL;
	size_t digits;

	if (!count || strncmp(count, ",i=", 3) != 0)
		return 0;
	count += 3;
	digits = strspn(count, "0123456789");
	if (!digits || count[digits])
		return 0;
	return digits > ROUND_DIGITS ? SASL_ROUNDS_MAX + 1 : strtoul(count, NULL, 10);
}

static enum sasl_verdict judge_challenge(const uint8_t *said, size_t len, struct err *e)
{
	char text[SASL_MESSAGE_MAX];
	unsigned long n;

	memcpy(text, said, len);
	text[len] = '\0';
	n = strlen(text) == len ? rounds(text) : 0;
	if (!n)
		return malformed("its challenge of a login is malformed", e);
	if (n <= SASL_ROUNDS_MAX)
		return SASL_PASS;
	(void)err_set(e, EACCES,
	              "it asks for more than %d rounds of hashing for a login; set a smaller "
	              "scram_iterations there, and the passwords of its roles again",
	              SASL_ROUNDS_MAX);
	return SASL_REFUSE;
}

/* Each message of SCRAM once, and in its turn: libpq takes the last for what proves the server. */
static bool in_turn(enum sasl_login *login, uint32_t code)
{
	static const uint32_t turns[] = {
		[SASL_BEGUN] = ASK_SASL,
		[SASL_OFFERED] = ASK_SASL_CONTINUE,
		[SASL_CHALLENGED] = ASK_SASL_FINAL,
	};

	if (*login == SASL_PROVED || turns[*login] != code)
		return false;
	(*login)++;
	return true;
}

static enum sasl_verdict judge_request(uint8_t *data, size_t *len, size_t *message,
                                       enum sasl_login *login, struct err *e)
{
	uint32_t code;

	if (*message < AUTH_HEAD)
		return malformed("what it asks for a login is too short", e);
	code = number(data + HEAD);
	switch (code) {
	case ASK_NOTHING:
		return *login == SASL_PROVED ? SASL_OVER : refuse(code, e);
	case ASK_SASL:
	case ASK_SASL_CONTINUE:
	case ASK_SASL_FINAL:
		if (!in_turn(login, code))
			return malformed("its messages of a login come out of turn", e);
		if (code == ASK_SASL)
			return rewrite(data, len, message, e);
		return code == ASK_SASL_FINAL
		               ? SASL_PASS
		               : judge_challenge(data + AUTH_HEAD, *message - AUTH_HEAD, e);
	default:
		return refuse(code, e);
	}
}

/* Requests, notices and the version of the protocol are all that may come. */
static bool may_come(uint8_t type)
{
	return type == 'R' || type == 'N' || type == 'v';
}

enum sasl_verdict sasl_judge(uint8_t *data, size_t *len, enum sasl_login *login,
                             size_t *ret_message, struct err *e)
{
	size_t message;

	if (*len == 0)
		return SASL_MORE;
	if (data[0] == 'E')
		return SASL_OVER;
	if (!may_come(data[0]))
		return malformed("it says something else before a login", e);
	if (*len < HEAD)
		return SASL_MORE;
	message = number(data + 1);
	if (message < HEAD - 1 || message > SASL_MESSAGE_MAX - 1)
		return malformed("the length of a message before the login is wrong", e);
	message++;
	if (*len < message)
		return SASL_MORE;
	*ret_message = message;
	return data[0] == 'R' ? judge_request(data, len, ret_message, login, e) : SASL_PASS;
}
