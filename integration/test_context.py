"""What a model of a provider is told of its session: earlier turns, instructions, summaries."""

import json
import uuid

import pytest

from daemon import Daemon
from provider.models import DIALECTS, declare, entry
from provider.server import Call, Hang, Say


@pytest.fixture(scope="module")
def daemon(world, provider):
    daemon = Daemon(world, ("acme",))
    models = [entry(d, d, provider.url) for d in DIALECTS]
    models += [entry(f"small-{d}", d, provider.url, contextWindow=31000) for d in DIALECTS]
    daemon.start(models=declare(daemon, *models))
    yield daemon
    assert daemon.stop() == 0, daemon.log()[-4000:]
    world.daemons.remove(daemon)


@pytest.fixture
def client(daemon, provider):
    provider.will()
    return daemon.client("acme")


def messages(request):
    """(role, text) of all that a model was told; calls and results by their names."""
    told = request.json.get("messages", request.json.get("input"))
    said = []
    for m in told:
        content = m.get("content", m.get("output", m.get("arguments", "")))
        for part in content if isinstance(content, list) else [{"text": content}]:
            text = part.get("text") or part.get("content") or json.dumps(part)
            said.append((m.get("role", m.get("type")), text))
    return [s for s in said if s[0] != "system"]


def plain(said):
    """Without the marks that say how far a provider may keep it."""
    if isinstance(said, dict):
        return {k: plain(v) for k, v in said.items() if k != "cache_control"}
    return [plain(v) for v in said] if isinstance(said, list) else said


# --- earlier turns ---------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_model_sees_the_whole_session(client, provider, dialect):
    session = client.session(model=dialect)
    assert client.run(session, "first question").status == "completed"
    assert client.run(session, "second question").status == "completed"
    first, second = (messages(r) for r in provider.requests)
    assert first == [("user", "first question")]
    answer = ("assistant", "Grüße, Welt \U0001f30d\n")
    assert second == [("user", "first question"), answer, ("user", "second question")]


@pytest.mark.parametrize("dialect,calls", [
    ("chat-completions", "calls"), ("responses", "reasoning-and-calls"),
    ("messages", "thinking-and-calls")])
def test_calls_of_earlier_turns_have_their_results(client, provider, dialect, calls):
    provider.will(calls, "text")
    session = client.session(model=dialect)
    assert client.run(session, "do it").status == "completed"
    assert client.run(session, "and now?").status == "completed"
    during, after = provider.requests[1].json, provider.requests[2].json
    key = "messages" if "messages" in after else "input"
    assert plain(after[key][:len(during[key])]) == plain(during[key]), "what was told stays"
    assert messages(provider.requests[2])[-1] == ("user", "and now?")


def test_a_fork_has_the_past_of_its_source(client, provider):
    session = client.session(model="messages")
    for line in ("one", "two", "three"):
        client.run(session, line)
    fork = client.call("POST", f"/v1/sessions/{session}/fork", {"throughTurn": 1}, 201)["id"]
    client.run(fork, "elsewhere")
    told = [text for role, text in messages(provider.requests[-1]) if role == "user"]
    assert told == ["one", "two", "elsewhere"]
    client.run(session, "four")
    told = [text for role, text in messages(provider.requests[-1]) if role == "user"]
    assert told == ["one", "two", "three", "four"]


def test_the_end_of_a_turn_is_told_as_it_was(client, provider):
    provider.will(Say(400, {"error": {"message": "no such thing"}}))
    session = client.session(model="chat-completions")
    assert client.run(session, "broken").status == "failed"
    hang = provider.will(Hang())
    turn = client.start(session, "too slow")
    assert hang.began.wait(30)
    client.end(turn)
    assert client.run(session, "and again").status == "completed"
    said = messages(provider.requests[-1])
    assert [role for role, _ in said] == ["user"] * 3
    assert said[0][1] == "broken"
    assert "failed (model_failed)" in said[1][1] and said[1][1].endswith("too slow")
    assert "cancelled by the user" in said[2][1] and said[2][1].endswith("and again")


def test_the_past_survives_a_restart(daemon, client, provider):
    session = client.session(model="responses")
    client.run(session, "before")
    assert daemon.stop() == 0
    daemon.start(models=f"{daemon.var}/models.json")
    client = daemon.client("acme")
    client.run(session, "after")
    assert [t for r, t in messages(provider.requests[-1]) if r == "user"] == ["before", "after"]


# --- the system prompt -------------------------------------------------------------------------


def system(request):
    """What a model is told before all else."""
    said = request.json
    if "messages" in said and said["messages"][0]["role"] == "system":
        return said["messages"][0]["content"]
    text = said.get("instructions", said.get("system"))
    return text if isinstance(text, str) else "".join(part["text"] for part in text)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_workspace_tools_and_rules_are_told(client, provider, dialect):
    session = client.session(model=dialect, cwd="sub/dir", instructions="Answer in verse. é")
    client.run(session, "hello")
    request, = provider.requests
    told = system(request)
    assert "/workspace/sub/dir" in told and "# Rules" in told
    tools = [t.get("name") or t["function"]["name"] for t in request.json["tools"]]
    assert all(f"\n- {name}: " in told for name in tools)
    assert told.endswith("# Instructions for this session\nAnswer in verse. é\n")
    client.run(session, "again")
    assert system(provider.requests[-1]) == told, "or no provider could cache it"


def test_instructions_are_the_sessions(client, provider):
    session = client.call("POST", "/v1/sessions", {"model": "messages"}, 201)
    assert session["instructions"] is None
    where = f"/v1/sessions/{session['id']}"
    for text in ("x" * 32768, "Be brief."):
        assert client.call("PATCH", where, {"instructions": text})["instructions"] == text
    assert client.call("GET", where)["instructions"] == "Be brief."
    assert client.call("GET", f"{where}/history")["session"]["instructions"] == "Be brief."
    client.run(session["id"], "hello")
    assert "Be brief." in system(provider.requests[-1])
    fork = client.call("POST", f"{where}/fork", {}, 201)
    assert fork["instructions"] == "Be brief."
    assert client.call("PATCH", where, {"instructions": ""})["instructions"] is None
    client.run(session["id"], "hello")
    assert "Instructions" not in system(provider.requests[-1])
    client.call("POST", "/v1/sessions", {"instructions": "x" * 32769}, 400, "invalid_json")


def test_the_mode_is_told(client, provider):
    for approvals, said in (("sandbox", False), ("ask", "may deny it"), ("plan", "plan_exit, and")):
        client.run(client.session(model="messages", approvals=approvals), "hello")
        told = system(provider.requests[-1])
        assert said in told if said else "deny" not in told


def test_a_creation_with_instructions_happens_once(client):
    body = {"clientRequestId": str(uuid.uuid4()), "model": "messages", "instructions": "a"}
    made = client.call("POST", "/v1/sessions", body, 201)
    assert client.call("POST", "/v1/sessions", body, 201) == made
    for other in ("b", "", None):
        client.call("POST", "/v1/sessions", {**body, "instructions": other}, 409,
                    "idempotency_conflict")


# --- the end of what would go on for ever -----------------------------------------------------


def test_the_same_failure_five_times(client, provider):
    failing = Call("shell", {"command": "echo no; exit 7"})
    provider.will(*[failing] * 5)
    outcome = client.run(client.session(model="chat-completions"), "go on")
    assert (outcome.status, outcome.error["code"]) == ("failed", "loop_detected")
    assert len(provider.requests) == 5 and "shell 5 times" in outcome.error["message"]
    provider.will(*[failing] * 4, Call("shell", {"command": "echo no; exit 8"}), failing, "text")
    assert client.run(client.session(model="chat-completions"), "go on").status == "completed"


def test_steps_are_bounded(make_daemon, provider):
    daemon = make_daemon(("acme",), options=["--max-turn-steps=3"])
    daemon.start(models=declare(daemon, entry("m", "chat-completions", provider.url)))
    client = daemon.client("acme")
    calls = [Call("list_files", {"limit": n + 1}) for n in range(4)]
    provider.will(*calls)
    outcome = client.run(client.session(), "go on")
    assert (outcome.status, outcome.error["code"]) == ("failed", "turn_step_limit")
    assert len(provider.requests) == 3 and "--max-turn-steps" in outcome.error["message"]
    provider.will(*calls[:2], "text")
    assert client.run(client.session(), "go on").status == "completed"
    assert daemon.stop() == 0


# --- summaries -----------------------------------------------------------------------------------

LONG = "x" * 30000  # a third of the room of a small model
OVERFLOW = Say(400, {"error": {"type": "invalid_request_error",
                               "code": "context_length_exceeded", "message": "too long"}})


def user_texts(request):
    return [text for role, text in messages(request) if role == "user"]


def is_summary(request):
    return system(request).startswith("You summarise") and "tools" not in request.json


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_too_long_is_summarised(client, provider, dialect):
    session = client.session(model=f"small-{dialect}")
    for name in ("first", "second"):
        assert client.run(session, f"{name} {LONG}").status == "completed"
    assert not any(is_summary(r) for r in provider.requests)
    before = client.call("GET", f"/v1/sessions/{session}")["usage"]
    outcome = client.watch(session, f"third {LONG[:9000]}")
    assert outcome.status == "completed"
    kinds = [kind for _, kind, _ in outcome.events]
    assert [k for k in kinds if k.startswith("context.")] == [
        "context.summary.started", "context.summary.completed"]
    asked, answered = provider.requests[2:]
    assert is_summary(asked) and not is_summary(answered)
    told, = user_texts(asked)
    assert "## The person\nfirst x" in told and "Grüße, Welt" in told
    now = user_texts(answered)
    assert "summary of what this session said" in now[0] and "Grüße, Welt" in now[0]
    assert not any("first x" in text for text in now) and now[-1].endswith("x")
    used = client.call("GET", f"/v1/sessions/{session}")["usage"]
    assert used["input"] == before["input"] * 2, "two answers, and then two more"
    # What is summarised stays in the history, and the summary is used again, in a fork too.
    page = client.call("GET", f"/v1/sessions/{session}/history")["data"]
    assert len(page) == 3 and any(t["turn"]["items"][0]["text"].startswith("first") for t in page)
    fork = client.call("POST", f"/v1/sessions/{session}/fork", {}, 201)["id"]
    for session in (session, fork):
        client.run(session, "fourth")
        assert not is_summary(provider.requests[-1])
        assert "summary of what this session said" in user_texts(provider.requests[-1])[0]


def test_a_long_turn_is_summarised_while_it_runs(daemon, client, provider):
    call = Call("shell", {"command": "head -c 30000 /dev/zero | tr '\\0' y"})
    provider.will(call, call, call, "text", "text")
    session = client.session(model="small-chat-completions")
    assert client.run(session, "go on").status == "completed"
    asked = [is_summary(r) for r in provider.requests]
    assert asked == [False, False, False, True, False]
    last = provider.requests[-1].json["messages"]
    roles = [m["role"] for m in last]
    assert roles[:2] == ["system", "user"] and roles.count("tool") in (1, 2)
    assert roles.count("tool") == sum(len(m.get("tool_calls") or []) for m in last)
    assert last[1]["content"].endswith("go on") and "summary of what" in last[1]["content"]
    assert daemon.stop() == 0
    daemon.start(models=f"{daemon.var}/models.json")
    client = daemon.client("acme")
    assert client.run(session, "and now?").status == "completed"
    assert "summary of what" in user_texts(provider.requests[-1])[0]


def test_a_provider_that_finds_it_too_long(client, provider):
    session = client.session(model="chat-completions")
    for name in ("one", "two", "three"):
        client.run(session, f"{name} {LONG[:3000]}")
    provider.will(OVERFLOW, "text", "text")
    assert client.run(session, "four").status == "completed"
    assert [is_summary(r) for r in provider.requests] == [False, True, False]
    provider.will(OVERFLOW, "text", OVERFLOW)
    outcome = client.run(session, f"five {LONG[:3000]}")
    assert (outcome.status, outcome.error["code"]) == ("failed", "context_overflow")
    assert "does not fit" in outcome.error["message"] and len(provider.requests) == 3
    provider.will(OVERFLOW)
    outcome = client.run(client.session(model="chat-completions"), "alone")
    assert (outcome.status, outcome.error["code"]) == ("failed", "context_overflow")
    assert len(provider.requests) == 1, "there is nothing to summarise"


def test_without_a_summary_the_oldest_is_left_out(client, provider):
    session = client.session(model="small-messages")
    for name in ("first", "second"):
        client.run(session, f"{name} {LONG}")
    provider.will(Say(400, {"error": {"message": "not today"}}), "text")
    outcome = client.watch(session, f"third {LONG}")
    assert outcome.status == "completed"
    kinds = [k for _, k, _ in outcome.events if k.startswith("context.")]
    assert kinds == ["context.summary.started", "context.summary.failed"]
    now = user_texts(provider.requests[-1])
    assert "is left out here" in now[0] and "second x" in now[0] and len(now) == 2


@pytest.mark.parametrize("more", (0, 1))
def test_the_longest_summary_and_one_byte_more(client, provider, more):
    session = client.session(model="small-chat-completions")
    for name in ("first", "second"):
        client.run(session, f"{name} {LONG}")
    choices = {"delta": {"content": "s" * (65536 + more)}}, {"delta": {}, "finish_reason": "stop"}
    said = "".join(f"data: {json.dumps({'choices': [c]})}\n\n" for c in choices)
    provider.will(Say(200, said, kind="text/event-stream"), "text")
    outcome = client.watch(session, f"third {LONG[:9000]}")
    assert outcome.status == "completed", outcome.error
    kinds = [k for _, k, _ in outcome.events if k.startswith("context.")]
    assert kinds == ["context.summary.started",
                     "context.summary.failed" if more else "context.summary.completed"]
    assert ("s" * 65536 in user_texts(provider.requests[-1])[0]) != more


def test_a_summary_is_cancelled(client, provider):
    session = client.session(model="small-responses")
    for name in ("first", "second"):
        client.run(session, f"{name} {LONG}")
    hang = provider.will(Hang())
    turn = client.start(session, f"third {LONG}")
    assert hang.began.wait(30)
    client.end(turn)
    assert hang.gone.wait(10)
