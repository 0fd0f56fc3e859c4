/*
 * summarise.h - the beginning of a session in the model's own words, when all of it is too
 * long for it (inside this folder only).
 *
 * What is summarised stays in the store and in the history; the summary is stored beside it.
 */
#ifndef DAEMON_TURN_SUMMARISE_H
#define DAEMON_TURN_SUMMARISE_H

#include "daemon/turn/run.h"

#define SUMMARISE_SHARE 80 /* percent of the room of a prompt from which on it is due */
#define SUMMARISE_KEPT  30 /* percent of it that stay word by word, at most, where they can */

/*
 * Have a summary made when it is due, or in any case; beside is what a prompt comes to beside
 * its items, in tokens.  *ret_made says whether it was; ROUND_AGAIN also when it was not.
 */
enum round summarise(struct run *r, size_t beside, bool in_any_case, bool *ret_made, struct err *e);

#endif
