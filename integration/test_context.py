"""What a model of a provider is told of its session: earlier turns, instructions, summaries."""

import json

import pytest

from daemon import Daemon
from provider.models import DIALECTS, declare, entry
from provider.server import Hang, Say


@pytest.fixture(scope="module")
def daemon(world, provider):
    daemon = Daemon(world, ("acme",))
    models = [entry(d, d, provider.url) for d in DIALECTS]
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
    assert after[key][:len(during[key])] == during[key], "nothing that was told changes"
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
    client.cancel(turn)
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
