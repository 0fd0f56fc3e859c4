#include "daemon/turn/offered.h"

#include "common/attr.h"

#define OBJECT(properties, required)                                                      \
	"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{" properties \
	"},\"required\":[" required "]}"
#define TEXT(name, what) "\"" name "\":{\"type\":\"string\",\"description\":\"" what "\"}"
#define NUMBER(name, low, high, what)                                              \
	"\"" name "\":{\"type\":\"integer\",\"minimum\":" low ",\"maximum\":" high \
	",\"description\":\"" what "\"}"

const struct model_tool *offered_tools(size_t *ret_count)
{
	static const struct model_tool tools[] = {
		{ "shell",
		  "Run a command line with sh in the sandbox and wait for its end. Returns what it "
		  "wrote and its exit code; long output is cut in the middle.",
		  OBJECT(TEXT("command", "the command line") "," TEXT(
				 "cwd",
				 "where it runs; default: the session's working directory") "," NUMBER("timeoutMs",
		                                                                                       "1",
		                                                                                       "3600000",
		                                                                                       "milliseconds; default 120000"),
		         "\"command\"") },
		{ "read_file", "Read a part of a file as text.",
		  OBJECT(TEXT("path", "absolute, or from the session's working directory") "," NUMBER(
				 "offset", "0", "9007199254740991",
				 "first byte; default 0") "," NUMBER("limit", "1", "65536",
		                                                     "bytes; default 65536"),
		         "\"path\"") },
		{ "write_file", "Make a file, or replace one, with exactly this content.",
		  OBJECT(TEXT("path", "absolute, or from the session's working directory") "," TEXT(
				 "content", "all of it"),
		         "\"path\",\"content\"") },
		{ "list_files", "List a directory.",
		  OBJECT(TEXT("path", "default: the session's working directory") "," NUMBER(
				 "limit", "1", "1000", "entries; default 1000"),
		         "") },
		{ "ask_user", "Ask the person a question, and wait for the answer.",
		  OBJECT(TEXT("question",
		              "what to ask") ","
		                             "\"options\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},"
		                             "\"description\":\"answers to choose from\"}," NUMBER(
						     "expiresInSeconds", "1", "2592000",
						     "default: never"),
		         "\"question\"") },
		{ "plan_enter",
		  "Propose to plan before anything is changed; the person decides. While planning, "
		  "only what reads is run.",
		  OBJECT(TEXT("reason", "why planning first would help"), "") },
		{ "plan_exit", "Show the plan to the person, who approves it or not.",
		  OBJECT(TEXT("plan", "the plan"), "\"plan\"") },
	};

	*ret_count = ARRAY_LEN(tools);
	return tools;
}
