/*
 * output.h - the calls about output that was kept, and about commands in the background.
 */
#ifndef GUEST_OUTPUT_H
#define GUEST_OUTPUT_H

#include "guest/call.h"

/* NULL when the call is over before it began, for the reason in e. */
struct call *output_start(const struct json *request, struct err *e);
struct call *input_start(const struct json *request, struct err *e);
struct call *stop_start(const struct json *request, struct err *e);
struct call *commands_start(const struct json *request, struct err *e);

#endif
