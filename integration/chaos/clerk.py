"""A provider of models that is told in the input what to say, and counts what it is asked.

An input holds one line "PLAN {json}": {"mark", "calls": [[{"name", "arguments"}, ...], ...]},
a list of calls for each answer. When all of them have their results it says "told MARK".
"OUTPUT" in arguments stands for the id of the output that the last result with one names.
"""

import contextlib
import json
import re
import socket
import threading
import time

from provider.server import EVENTS, Hang, Provider, Say, chunk, head

PLAN = re.compile(r"^PLAN (\{.*\})$", re.MULTILINE)
OUTPUT = re.compile(r"\bout_\w+")


def text_of(content):
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or [])


def place(messages):
    """(plan, how many answers of it there are) of a conversation."""
    last = max(i for i, m in enumerate(messages) if m["role"] == "user" and
               PLAN.search(text_of(m["content"])))
    plan = json.loads(PLAN.search(text_of(messages[last]["content"]))[1])
    named = [n for m in messages[last:] if m["role"] == "tool"
             for n in OUTPUT.findall(text_of(m["content"]))]
    return plan, sum(1 for m in messages[last:] if m.get("tool_calls")), (named or ["none"])[-1]


def stream(connection, deltas):
    connection.sendall(head(200, EVENTS))
    for delta in deltas:
        connection.sendall(chunk(f"data: {json.dumps({'choices': [delta]})}\n\n".encode()))
    connection.sendall(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def calls(batch, prefix, output):
    return [{"index": i, "id": f"{prefix}_{i}", "type": "function",
             "function": {"name": call["name"], "arguments":
                          json.dumps(call["arguments"]).replace('"OUTPUT"', f'"{output}"')}}
            for i, call in enumerate(batch)]


class Cut:
    """Begins an answer and goes away."""

    def __call__(self, connection, request):
        connection.sendall(head(200, EVENTS) + chunk(b'data: {"choices":[{"delta":'))
        return False


MOODS = {"hangs": Hang, "is overloaded": lambda: Say(529, {"error": {"message": "later"}}),
         "breaks off": Cut}


class Clerk(Provider):
    """mood is what all requests meet: None, or an act."""

    def __init__(self, ledger):
        self.ledger, self.mood = ledger, None
        self.asked = {}  # (mark, answer): [when]
        self.counting = threading.Lock()
        super().__init__()

    def one(self, connection):
        request = self.read(connection)
        if not request:
            return False
        mood = self.mood
        if mood:
            return mood(connection, request)
        if "tools" not in request.json:
            # A summary, of turns that were told already: with none the oldest of them are left out.
            # A call is none, and unlike an empty answer it is not asked for again.
            stream(connection, [{"delta": {"role": "assistant", "tool_calls": calls(
                [{"name": "shell", "arguments": {}}], "none", "none")}},
                {"delta": {}, "finish_reason": "tool_calls"}])
            return True
        plan, step, output = place(request.json["messages"])
        with self.counting:
            self.asked.setdefault((plan["mark"], step), []).append(time.monotonic())
        if step < len(plan["calls"]):
            deltas = [{"delta": {"role": "assistant",
                                 "tool_calls": calls(plan["calls"][step],
                                                     f"{plan['mark']}_{step}", output)}},
                      {"delta": {}, "finish_reason": "tool_calls"}]
        else:
            deltas = [{"delta": {"role": "assistant", "content": f"told {plan['mark']}"}},
                      {"delta": {}, "finish_reason": "stop"}]
        stream(connection, deltas)
        return True

    def cut_off(self):
        """Ends all connections, hung ones too."""
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def judge(self, mark, answers, began, ended):
        """A model is asked once for each answer, and once more for each time that something
        broke while the turn went on."""
        broke = self.ledger.broke(began, ended)
        for step in range(answers):
            times = self.asked.pop((mark, step), [])
            if not 1 <= len(times) <= 1 + broke:
                raise AssertionError(f"{mark}: the model was asked {len(times)} times for answer "
                                     f"{step}, while something broke {broke} times")


