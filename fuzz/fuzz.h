/*
 * fuzz.h - what fuzz targets share.
 *
 * A target is a program of libFuzzer's for one reader of foreign bytes.  It asserts what the
 * reader promises, beyond what the sanitizers see: demand() ends the program, and that
 * input is a finding.
 */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Standard error as the program began: what a reader logs goes nowhere (-close_fd_mask). */
extern int fuzz_words;

#define demand(what)                                                                           \
	do {                                                                                   \
		if (!(what)) {                                                                 \
			dprintf(fuzz_words, "%s:%d: broken: %s\n", __FILE__, __LINE__, #what); \
			abort();                                                               \
		}                                                                              \
	} while (0)

/* Exactly so many bytes, for free(): one too far is seen. */
static inline char *room_for(size_t size)
{
	char *room = malloc(size ? size : 1);

	demand(room);
	return room;
}

/* A copy that ends with a NUL. */
static inline char *text_of(const void *data, size_t len)
{
	char *text = room_for(len + 1);

	memcpy(text, data, len);
	text[len] = '\0';
	return text;
}

/* Another one than before when a descriptor was left open. */
static inline int lowest_fd(void)
{
	int fd = dup(STDIN_FILENO);

	demand(fd >= 0 && close(fd) == 0);
	return fd;
}

#endif
