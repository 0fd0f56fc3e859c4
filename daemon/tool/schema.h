/*
 * schema.h - JSON Schema of a tool's arguments, as text.
 */
#ifndef DAEMON_TOOL_SCHEMA_H
#define DAEMON_TOOL_SCHEMA_H

/* clang-format off */
#define SCHEMA_OBJECT(properties, required) \
	"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{" properties \
	"},\"required\":[" required "]}"
#define SCHEMA_TEXT(name, what) \
	"\"" name "\":{\"type\":\"string\",\"description\":\"" what "\"}"
#define SCHEMA_INT(name, low, high, what) \
	"\"" name "\":{\"type\":\"integer\",\"minimum\":" low ",\"maximum\":" high \
	",\"description\":\"" what "\"}"
#define SCHEMA_BOOL(name, what) \
	"\"" name "\":{\"type\":\"boolean\",\"description\":\"" what "\"}"
#define SCHEMA_PATH(what) SCHEMA_TEXT("path", what)
/* clang-format on */

#define SCHEMA_PLACE "absolute, or from the session's working directory"

#endif
