/*
 * files.h - for targets whose reader takes a file: the input as one that it trusts.
 */
#ifndef FUZZ_FILES_H
#define FUZZ_FILES_H

#include <stddef.h>
#include <stdint.h>

/* Its path; the directory is the program's own and goes with it. */
const char *input_file(const uint8_t *data, size_t size);

/* That directory. */
const char *input_dir(void);

#endif
