/*
 * outputs.h - what commands of both kinds share (inside this folder only).
 */
#ifndef DAEMON_SANDBOX_OUTPUTS_H
#define DAEMON_SANDBOX_OUTPUTS_H

#include "common/json.h"
#include "daemon/sandbox/sandbox.h"

/* Whether it can be the id of an output. */
bool output_id_valid(const char *id);

/* The START of an exec. */
int exec_put_start(struct json *start, const struct exec_spec *spec, struct err *e) must_check;

#endif
