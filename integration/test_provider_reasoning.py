"""Reasoning that goes back to its model, the effort that is asked for, and what was discarded."""

import json

import pytest

from daemon import Daemon
from provider.models import DIALECTS, declare, entry
from provider.server import Forever, Play
from world import eventually

REASONS = {"efforts": ["low", "high"]}
SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
SIGNED = {"type": "thinking", "thinking": "Let me look.", "signature": "EqQB"}
ASKED = {"type": "reasoning", "id": "rs_q", "encrypted_content": "gBBBB",
         "summary": [{"type": "summary_text", "text": "I had better ask."}]}


def models(provider, **more):
    return [*(entry(d, d, provider.url, reasoning=REASONS, **more) for d in DIALECTS),
            entry("plain", "responses", provider.url, **more),
            entry("priced", "responses", provider.url, **more,
                  prices={"input": 2, "output": 8.5, "cached": 0.25}),
            entry("budgeted", "messages", provider.url, reasoning={"budget": True},
                  **{**more, "maxOutputTokens": 20000})]


@pytest.fixture(scope="module")
def daemon(world, provider):
    daemon = Daemon(world, ("acme",))
    daemon.start(models=declare(daemon, *models(provider)))
    yield daemon
    assert daemon.stop() == 0, daemon.log()[-4000:]
    world.daemons.remove(daemon)


@pytest.fixture
def client(daemon, provider):
    provider.will()
    return daemon.client("acme")


def history(client, session):
    return [e["turn"] for e in client.call("GET", f"/v1/sessions/{session}/history")["data"]]


def of_kind(items, kind):
    return [i for i in items if i["kind"] == kind]


# --- back to where it came from --------------------------------------------------------------


def test_encrypted_reasoning_precedes_its_calls(client, provider):
    provider.will("reasoning-and-calls", "text")
    session = client.session(model="responses")
    outcome = client.watch(session, "look")
    assert outcome.status == "completed", outcome.error
    kinds = [i.get("type") for i in provider.requests[1].json["input"]]
    assert kinds == [None, "reasoning", "function_call", "function_call",
                     "function_call_output", "function_call_output"]
    assert provider.requests[1].json["input"][1] == SEALED
    assert provider.requests[1].json["include"] == ["reasoning.encrypted_content"]
    thoughts = [e["data"]["text"] for _, kind, e in outcome.events
                if kind == "response.reasoning.delta"]
    assert thoughts == ["**Listing**", " files"]
    turn, = history(client, session)
    seq = {"seq": 1, "kind": "reasoning"}
    assert of_kind(turn["items"], "reasoning") == [{**seq, "encrypted_content": "[redacted]"}]
    assert turn["displayItems"] == [{**seq, "text": "**Listing** files", "textTruncated": False}]
    agents = client.request("GET", f"/v1/turns/{turn['id']}/agents").raw.decode()
    assert "gAAAA" not in json.dumps([turn, outcome.events, agents])
    assert client.run(session, "again").status == "completed"
    assert SEALED in provider.requests[2].json["input"], "the next turn has it, too"


def test_signed_reasoning_precedes_its_calls(client, provider):
    provider.will("thinking-and-calls", "text")
    session = client.session(model="messages")
    assert client.run(session, "look").status == "completed"
    answer = provider.requests[1].json["messages"][1]
    assert answer["content"][0] == SIGNED and answer["role"] == "assistant"
    assert [b["type"] for b in answer["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    turn, = history(client, session)
    assert [i["text"] for i in turn["displayItems"]] == ["Let me look."]
    assert "EqQB" not in json.dumps(turn)


def test_plain_reasoning_is_shown_and_stays_here(client, provider):
    provider.will("reasoning-and-call", "text")
    session = client.session(model="chat-completions")
    outcome = client.watch(session, "look")
    assert outcome.status == "completed", outcome.error
    assert "Let me" not in provider.requests[1].raw.decode()
    turn, = history(client, session)
    assert of_kind(turn["items"], "reasoning") == [
        {"seq": 1, "kind": "reasoning", "encrypted_content": None}]
    assert [i["text"] for i in turn["displayItems"]] == ["Let me look."]


@pytest.mark.parametrize("changed", [False, True], ids=["the-same-model", "another-model"])
def test_a_turn_that_goes_on_after_a_restart(make_daemon, provider, changed):
    """Its reasoning was stored, and is only for the model that it is from."""
    daemon = make_daemon(("acme",))
    daemon.start(models=declare(daemon, *models(provider)))
    client = daemon.client("acme")
    provider.will("reasoning-and-question", "text")
    session = client.session(model="responses")
    turn = client.start(session, "ask me")
    client.wait_for(turn, "waiting_for_input")
    assert daemon.stop() == 0
    more = {"model": "vendor/new"} if changed else {}
    daemon.start(models=declare(daemon, *models(provider, **more)))
    client = daemon.client("acme")
    asked, = client.call("GET", f"/v1/requests?turnId={turn}")["data"]
    client.call("POST", f"/v1/requests/{asked['id']}/resolve", {"decision": "yes"})
    assert client.wait(turn).status == "completed"
    given = [i for i in provider.requests[1].json["input"] if i.get("type") == "reasoning"]
    assert given == ([] if changed else [ASKED])
    fork = client.call("POST", f"/v1/sessions/{session}/fork", {}, 201)["id"]
    copied, = history(client, fork)
    assert of_kind(copied["items"], "reasoning")[0]["encrypted_content"] == "[redacted]"
    assert daemon.stop() == 0


# --- how much of it --------------------------------------------------------------------------


@pytest.mark.parametrize("effort,asked", [("none", "low"), ("medium", "low"), ("max", "high")])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_effort_of_a_session(client, provider, dialect, effort, asked):
    assert client.run(client.session(model=dialect, effort=effort), "x").status == "completed"
    said = provider.requests[0].json
    found = {"chat-completions": said.get("reasoning_effort"),
             "responses": said.get("reasoning", {}).get("effort"),
             "messages": said.get("output_config", {}).get("effort")}
    none = dialect == "messages" and effort == "none"
    assert {d for d, level in found.items() if level} == (set() if none else {dialect})
    assert found[dialect] == (None if none else asked)
    assert ("thinking" in said) == (dialect == "messages" and not none)


def test_a_budget_instead_of_a_level(client, provider):
    assert client.run(client.session(model="budgeted", effort="high"), "x").status == "completed"
    assert provider.requests[0].json["thinking"] == {"type": "enabled", "budget_tokens": 10000}
    assert "output_config" not in provider.requests[0].json


def test_a_model_that_does_not_reason_is_not_asked_to(client, provider):
    listed = {m["id"]: m["efforts"] for m in client.call("GET", "/v1/models")["data"]}
    assert listed["plain"] == listed["budgeted"] == [] and listed["messages"] == ["low", "high"]
    assert client.run(client.session(model="plain", effort="high"), "x").status == "completed"
    assert not {"reasoning", "include"} & set(provider.requests[0].json)


# --- what it costs ---------------------------------------------------------------------------


def test_the_cost_of_a_turn(client, provider):
    provider.will("reasoning-and-calls", "text", "text")
    session = client.session(model="priced")
    outcome = client.watch(session, "look")
    answers = [e["data"]["usage"] for _, kind, e in outcome.events
               if kind == "agent.turn.finished"]
    assert answers[0] == {"inputTokens": 36, "outputTokens": 87, "cachedTokens": 20,
                          "reasoningTokens": 64, "cost": pytest.approx(776.5e-6, abs=1e-12)}
    used = client.turn(outcome.turn["id"])["usage"]
    for key in ("input", "output", "cached", "reasoning"):
        assert used[key] == sum(a[f"{key}Tokens"] for a in answers)
    cost = ((used["input"] - used["cached"]) * 2 + used["cached"] * 0.25 + used["output"] * 8.5)
    assert used["cost"] == pytest.approx(cost / 1e6, abs=1e-12) and used["cached"] > 20
    assert outcome.output["completion"]["reasoningTokens"] == used["reasoning"] == 128
    assert history(client, session)[0]["usage"] == used
    again = client.run(session, "again").turn["usage"]
    whole = client.call("GET", f"/v1/sessions/{session}")["usage"]
    assert whole == {key: pytest.approx(used[key] + again[key]) for key in used}
    fork = client.call("POST", f"/v1/sessions/{session}/fork", {}, 201)
    assert fork["usage"] == {"input": 0, "output": 0, "cached": 0, "reasoning": 0, "cost": None}


def test_what_has_no_price_has_no_cost(client, provider):
    session = client.session(model="plain")
    used = client.run(session, "x").turn["usage"]
    assert used["cost"] is None and used["input"] > 0
    assert client.call("GET", f"/v1/sessions/{session}")["usage"] == used


# --- what was discarded ----------------------------------------------------------------------


def test_what_was_discarded_stays_to_be_seen(client, provider):
    provider.will(Play("overloaded"), "text")
    session = client.session(model="messages")
    assert client.run(session, "say it").status == "completed"
    assert provider.requests[0].raw == provider.requests[1].raw
    turn, = history(client, session)
    seen, = turn["displayItems"]
    assert (seen["seq"], seen["kind"], seen["text"]) == (1, "discarded", "hi")
    assert "busy" in seen["reason"] and "Overloaded" not in seen["reason"]
    assert [i["kind"] for i in turn["items"]] == ["user", "assistant"]
    assert turn["items"][1]["seq"] == 2


def test_what_was_shown_before_a_turn_failed(client, provider):
    provider.will(Play("overloaded"), Play("overloaded"))
    session = client.session(model="messages")
    assert client.run(session, "say it").status == "failed"
    turn, = history(client, session)
    assert [(i["kind"], i["text"]) for i in turn["displayItems"]] == [("discarded", "hi")] * 2
    assert [i["kind"] for i in turn["items"]] == ["user"]


def test_what_was_shown_before_a_turn_was_cancelled(client, provider):
    first = 'data: {"choices":[{"delta":{"role":"assistant","content":"half a wo"}}]}\n\n'
    provider.will(Forever("", first=first))
    session = client.session(model="chat-completions")
    with client.events() as events:
        turn = client.start(session, "say it")
        eventually(lambda: [k for _, k, _ in events.seen if k == "response.text.delta"], 20,
                   "the first words")
        client.end(turn)
    ended, = history(client, session)
    assert ended["status"] == "cancelled"
    assert [(i["kind"], i["text"], i["reason"]) for i in ended["displayItems"]] == [
        ("discarded", "half a wo", "cancelled")]
