/*
 * root.h - for targets whose reader names absolute paths: a root that has nothing of the host's.
 */
#ifndef FUZZ_ROOT_H
#define FUZZ_ROOT_H

#include <stddef.h>
#include <stdint.h>

/*
 * Call fn, and wait for it, in a thread of its own for which "/" is a small tmpfs that is empty
 * at first.  It is the same thread each time, with umask 022.  The input of a finding in it is
 * in the log alone (Base64): a file of it would be in that root.
 */
void in_own_root(void (*fn)(const uint8_t *data, size_t size), const uint8_t *data, size_t size);

#endif
