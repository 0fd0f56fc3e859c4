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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define demand(what)                                                                       \
	do {                                                                               \
		if (!(what)) {                                                             \
			fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #what); \
			abort();                                                           \
		}                                                                          \
	} while (0)

#endif
