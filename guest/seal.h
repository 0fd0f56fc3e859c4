/*
 * seal.h - what nothing in the sandbox may ever do.
 */
#ifndef GUEST_SEAL_H
#define GUEST_SEAL_H

/* Lay the filter over this process and all that it starts.  Ends the guest when it cannot. */
void seal_self(void);

#endif
