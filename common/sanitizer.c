/* Nothing of this is in a build for use. */
#include "common/sanitizer.h"

#if SANITIZED

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define VARIABLE "CLOISTER_FAULT"
#define BLOCKS   16 /* that are lost: the last one may be found in a register */
#define AWAIT_MS 5000
#define PAUSE_MS 10

static void *volatile block; /* of which the compiler knows nothing */

#if SANITIZED_ADDRESSES
void sanitizer_await_children(void)
{
	for (int ms = 0; ms < AWAIT_MS; ms += PAUSE_MS) {
		pid_t pid;

		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			continue;
		if (pid < 0)
			return;
		(void)poll(NULL, 0, PAUSE_MS);
	}
}
#endif

static void leak(int size)
{
	for (int i = 0; i < BLOCKS; i++)
		block = malloc((size_t)size);
	block = NULL;
}

/* One byte too many. */
static void overflow(int size)
{
	block = malloc((size_t)size);
	memset(block, 0, (size_t)size + 1);
	free(block);
}

static void undefined(int size)
{
	int one = 1;

	block = &one;
	*(int *)block <<= size;
}

static void *count(void *number)
{
	for (int i = 0; i < 1000; i++)
		++*(volatile int *)number;
	return NULL;
}

static void race(int size)
{
	void *number = calloc(1, (size_t)size);
	pthread_t other;

	if (number && pthread_create(&other, NULL, count, number) == 0) {
		(void)count(number);
		(void)pthread_join(other, NULL);
	}
	free(number);
}

void sanitizer_fault(const char *who)
{
	static const struct {
		const char *name;
		void (*make)(int size);
	} kinds[] = { { "leak", leak },
		      { "overflow", overflow },
		      { "undefined", undefined },
		      { "race", race } };
	const char *at = getenv(VARIABLE);
	char kind[16];
	int size;

	at = at ? strstr(at, who) : NULL;
	if (!at || sscanf(at + strlen(who), "=%15[a-z]:%d", kind, &size) != 2)
		return;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (strcmp(kinds[i].name, kind) == 0)
			kinds[i].make(size);
}

char *sanitizer_asked(void)
{
	for (char **at = environ; at && *at; at++)
		if (strncmp(*at, VARIABLE "=", sizeof(VARIABLE)) == 0)
			return *at;
	return NULL;
}

#endif
