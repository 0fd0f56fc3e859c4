#include "daemon/link/fault.h"

#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define FIELDS "SFATAL%cVFATAL%cC%.5s%cM%.499s%c%c" /* as of struct err */

struct told {
	uint64_t at_ms;      /* monotonic */
	unsigned int unsaid; /* how often since */
	char text[sizeof(((struct err *)NULL)->text)];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct told told[FAULT_KINDS];

void fault_tell(int client, const char *sqlstate, const char *text)
{
	char message[5 + sizeof(FIELDS) + sizeof(told->text)] = "E";
	int n = snprintf(message + 5, sizeof(message) - 5, FIELDS, 0, 0, sqlstate, 0, text, 0, 0);
	const uint32_t len = (uint32_t)n + 4;

	for (int i = 0; i < 4; i++)
		message[1 + i] = (char)(len >> (24 - 8 * i));
	(void)send(client, message, (size_t)n + 5, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* (locked) Its place, or that of the one which has been there longest. */
static struct told *place_of(const char *text)
{
	struct told *oldest = told;

	for (struct told *t = told; t < told + FAULT_KINDS; t++) {
		if (strcmp(t->text, text) == 0)
			return t;
		if (t->at_ms < oldest->at_ms)
			oldest = t;
	}
	*oldest = (struct told){ 0 };
	(void)snprintf(oldest->text, sizeof(oldest->text), "%s", text);
	return oldest;
}

void fault_log(const char *text)
{
	uint64_t now = clock_mono_ms();
	unsigned int unsaid = 0;
	bool say;
	struct told *t;

	pthread_mutex_lock(&lock);
	t = place_of(text);
	say = !t->at_ms || now - t->at_ms >= FAULT_LOG_MS;
	if (say) {
		unsaid = t->unsaid;
		*t = (struct told){ .at_ms = now };
		(void)snprintf(t->text, sizeof(t->text), "%s", text);
	} else {
		t->unsaid++;
	}
	pthread_mutex_unlock(&lock);
	if (say && unsaid)
		log_warn("database: %s (%u more times since it was said)", text, unsaid);
	else if (say)
		log_warn("database: %s", text);
}
