"""Models of a provider, through the whole daemon: answers, faults, cancels, keys.

The provider is integration/provider/server.py, which speaks HTTP on loopback.
"""

import json
import re
import statistics
import time
from email.utils import formatdate

import pytest

from daemon import Daemon
from provider.models import DIALECTS, KEY, ask, declare, entry
from provider.server import Call, Forever, Hang, Play, Raw, Say
from world import eventually


@pytest.fixture(scope="module")
def daemon(world, provider):
    daemon = Daemon(world, ("acme", "globex"))
    models = [entry(d, d, provider.url) for d in DIALECTS]
    models.append(entry("hasty", "chat-completions", provider.url, idleSeconds=1,
                        headers={"X-Purpose": "test"}))
    models.append(entry("patient", "chat-completions", provider.url, idleSeconds=6))
    tenants = [t.entry() for t in daemon.tenants.values()]
    tenants[1]["models"] = ["responses", "elsewhere"]
    daemon.write_registry({"version": 1, "tenants": tenants})
    daemon.start(models=declare(daemon, *models))
    yield daemon
    assert daemon.stop() == 0, daemon.log()[-4000:]
    world.daemons.remove(daemon)


@pytest.fixture
def client(daemon, provider):
    provider.will()
    return daemon.client("acme")


# --- answers ---------------------------------------------------------------------------------


def test_the_catalogue_is_the_tenants(daemon, client):
    listed = client.call("GET", "/v1/models")["data"]
    assert [m["id"] for m in listed] == [*DIALECTS, "hasty", "patient"]
    assert listed[2]["dialect"] == "messages" and listed[2]["transportModel"] == "vendor/messages"
    assert listed[0]["contextWindow"] == 100000
    other = daemon.client("globex")
    assert [m["id"] for m in other.call("GET", "/v1/models")["data"]] == ["responses"]
    other.call("POST", "/v1/sessions", {"model": "messages"}, 422, "model_not_available")
    client.call("POST", "/v1/sessions", {"model": "demo"}, 422, "model_not_available")
    assert other.call("POST", "/v1/sessions", {}, 201)["model"] == "responses"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_answer_byte_by_byte(client, provider, dialect):
    provider.will(Play("text", piece=1))
    session = client.session(model=dialect)
    outcome = client.run(session, "Grüß mich")
    assert outcome.status == "completed" and outcome.text == "Grüße, Welt \U0001f30d\n"
    request, = provider.requests
    assert request.method == "POST" and "Grüß mich" in json.dumps(request.json, ensure_ascii=False)
    assert request.json["model"] == f"vendor/{dialect}" and request.json["stream"] is True
    if dialect == "messages":
        assert request.headers["x-api-key"] == KEY
        assert request.headers["anthropic-version"] == "2023-06-01"
        assert "authorization" not in request.headers
    else:
        assert request.headers["authorization"] == f"Bearer {KEY}"
    usage = client.call("GET", f"/v1/sessions/{session}")["usage"]
    assert usage["input"] > usage["cached"] > 0 and usage["output"] > 0


@pytest.mark.parametrize("dialect,calls", [
    ("chat-completions", "calls"), ("responses", "reasoning-and-calls"),
    ("messages", "thinking-and-calls")])
def test_calls_and_their_results(client, provider, dialect, calls):
    provider.will(Play(calls, piece=3), "text")
    outcome = ask(client, dialect)
    assert outcome.status == "completed", outcome.error
    assert [t["name"] for t in outcome.output["tools"]] == ["shell", "read_file"]
    first, second = (r.json for r in provider.requests)
    said = json.dumps(second)
    assert len(said) > len(json.dumps(first))
    ids = set(re.findall(r"call_[0-9a-f-]{36}", said))
    assert len(ids) == 2
    for name in ids:
        assert said.count(name) == 2, "each call has one result"


def test_headers_of_the_operator(client, provider):
    assert ask(client, "hasty").status == "completed"
    assert provider.requests[0].headers["x-purpose"] == "test"


def test_arguments_that_are_no_json_go_back_to_the_model(client, provider):
    provider.will("arguments-not-json", "text")
    outcome = ask(client, "chat-completions")
    assert outcome.status == "completed"
    result = provider.requests[1].json["messages"][-1]
    assert result["role"] == "tool" and "error" in result["content"]


def test_a_tool_that_is_not_known(client, provider):
    provider.will("strange-name", "text")
    outcome = ask(client, "chat-completions")
    assert outcome.status == "completed"
    assert "error" in provider.requests[1].json["messages"][-1]["content"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_refusal(client, provider, dialect):
    provider.will("refusal")
    outcome = ask(client, dialect)
    assert outcome.status == "completed" and outcome.text


def test_the_tools_are_those_that_are_offered(client, provider):
    """Each is known, and takes exactly the fields of its schema."""
    assert ask(client, "chat-completions").status == "completed"
    offered = [t["function"] for t in provider.requests[0].json["tools"]]
    assert {t["name"] for t in offered} >= {"shell", "read_file", "write_file", "list_files"}
    for tool in offered:
        name, schema = tool["name"], tool["parameters"]
        fields = {field: [] for field in schema["properties"]}
        assert "nonsense: unknown field" in refusal(client, provider, name, {**fields, "nonsense": 1})
        assert "unknown field" not in refusal(client, provider, name, fields)
        if schema["required"]:
            assert "required" in refusal(client, provider, name, {})


def refusal(client, provider, tool, arguments):
    """What the model is told about a call that is not run."""
    provider.will(Call(tool, arguments), "text")
    assert ask(client, "chat-completions").status == "completed"
    said = provider.requests[1].json["messages"][-1]["content"]
    assert said.startswith("error: "), said
    return said


# --- what passes ---------------------------------------------------------------------------------


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


@pytest.mark.parametrize("fault", [
    pytest.param(Say(429, {"error": {"message": "slow"}}), id="429"),
    pytest.param(Say(529, OVERLOADED), id="529"),
    pytest.param(Say(500, "oops", kind="text/plain"), id="500"),
    pytest.param(Say(503, ""), id="503"),
    pytest.param(Raw(b""), id="closed"),
    pytest.param(Raw(b"SSH-2.0-OpenSSH_9.2\r\n"), id="another-protocol"),
    pytest.param(Play("cut", cut=0), id="no-event"),
    pytest.param(Play("nothing"), id="nothing"),
    pytest.param(Play("not-json"), id="not-json"),
    pytest.param(Play("no-finish"), id="no-finish"),
    pytest.param(Play("error"), id="error-in-a-stream"),
    pytest.param(Play("cut"), id="ends-early"),
    pytest.param(Play("text", cut=300), id="cut")])
def test_a_fault_that_passes_is_tried_again(client, provider, fault):
    provider.will(fault, "text")
    outcome = ask(client, "chat-completions")
    assert outcome.status == "completed" and outcome.text == "Grüße, Welt \U0001f30d\n"
    assert len(provider.requests) == 2
    assert provider.requests[0].raw == provider.requests[1].raw


@pytest.mark.parametrize("dialect,fault", [
    ("responses", Play("failed")), ("responses", Play("error")), ("responses", Play("cut")),
    ("responses", Play("typeless")), ("messages", Play("only-pings")), ("messages", Play("cut")),
    ("messages", Play("no-stop")), ("messages", Play("sequence", cut=700))],
    ids=lambda v: v if isinstance(v, str) else v.name)
@pytest.mark.parametrize("piece", [1, None], ids=["bytes", "whole"])
def test_a_fault_inside_a_stream(client, provider, dialect, fault, piece):
    """Whatever pieces it comes in."""
    provider.will(Play(fault.name, piece, fault.cut), "text")
    outcome = ask(client, dialect)
    assert outcome.status == "completed" and outcome.text == "Grüße, Welt \U0001f30d\n"
    assert len(provider.requests) == 2


def test_an_answer_without_a_role(client, provider):
    provider.will("no-role")
    assert ask(client, "chat-completions").status == "completed"
    assert len(provider.requests) == 1


def test_retry_after_is_kept_to(client, provider):
    provider.will(Say(429, "", headers=(("Retry-After", "2"),)), "text")
    before = time.monotonic()
    assert ask(client, "messages").status == "completed"
    assert time.monotonic() - before >= 2


def test_retry_after_as_a_date(client, provider):
    date = int(time.time()) + 3
    provider.will(Say(529, "", headers=(("Retry-After", formatdate(date, usegmt=True)),)), "text")
    assert ask(client, "messages").status == "completed"
    assert time.time() > date - 1, "the date was not heeded"


@pytest.mark.parametrize("after", ["3600", formatdate(time.time() + 36000, usegmt=True)],
                         ids=["seconds", "date"])
def test_who_asks_for_an_hour_is_not_waited_for(client, provider, after):
    provider.will(Say(429, "", headers=(("Retry-After", after),)))
    outcome = ask(client, "messages")
    assert outcome.status == "failed" and outcome.error["code"] == "model_failed"
    assert len(provider.requests) == 1


def test_what_was_shown_is_taken_back(client, provider):
    provider.will(Play("overloaded"), "text")
    session = client.session(model="messages")
    outcome = client.watch(session, "say it")
    assert outcome.status == "completed" and outcome.text == "Grüße, Welt \U0001f30d\n"
    kinds = [kind for _, kind, _ in outcome.events if kind.startswith("response.")]
    assert kinds == ["response.text.delta", "response.attempt.discarded",
                     "response.text.delta", "response.text.delta"], kinds


def test_once_shown_there_is_one_more_attempt(daemon, client, provider):
    provider.will(*[Play("overloaded")] * 5)
    outcome = ask(client, "messages")
    assert outcome.status == "failed" and "is busy" in outcome.error["message"]
    assert "Overloaded" not in outcome.error["message"] and "Overloaded" in daemon.log()
    assert len(provider.requests) == 2


def test_a_connection_that_was_to_be_kept(client, provider):
    """Closed after the answer, without a word: the next request goes over a new one."""

    class Deceive(Play):
        def __call__(self, connection, request):
            super().__call__(connection, request)
            return False

    provider.will(Deceive("text"), "text")
    assert ask(client, "responses").status == "completed"
    assert ask(client, "responses").status == "completed"
    assert len(provider.requests) == 2


def test_a_connection_is_used_again(client, provider):
    assert ask(client, "responses").status == "completed"
    before = provider.connections
    for _ in range(3):
        assert ask(client, "responses").status == "completed"
    assert provider.connections == before


# --- what does not pass ------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect,fault,words", [
    ("chat-completions",
     Say(400, {"error": {"code": "context_length_exceeded", "message": "too long"}}),
     "does not fit into the model's context (HTTP 400): too long"),
    ("chat-completions", Say(413, ""), "does not fit into the model's context (HTTP 413)"),
    ("responses", Play("context"), "does not fit into the model's context"),
    ("messages", Play("context"), "does not fit into the model's context")],
    ids=["400", "413", "responses", "messages"])
def test_a_context_that_overflows(client, provider, dialect, fault, words):
    """It has a name, and trying again would not help."""
    provider.will(fault)
    outcome = ask(client, dialect)
    assert outcome.status == "failed" and outcome.error["code"] == "context_overflow"
    assert words in outcome.error["message"] and len(provider.requests) == 1


@pytest.mark.parametrize("fault,words", [
    pytest.param(Say(401, {"error": {"message": "bad key"}}), "denies access", id="401"),
    pytest.param(Say(429, {"error": {"code": "insufficient_quota", "message": "pay"}}),
                 "look at key and account (HTTP 429)", id="quota"),
    pytest.param(Say(404, "no such model", kind="text/plain"), "HTTP 404", id="404"),
    pytest.param(Say(200, {"error": {"message": "no stream for you"}}), "no stream for you",
                 id="no-stream"),
    pytest.param(Play("length-in-call"), "within a tool call", id="length-in-call"),
    pytest.param(Play("filtered-silent"), "declines", id="filtered")])
def test_a_fault_that_stays(client, provider, fault, words):
    provider.will(fault)
    outcome = ask(client, "chat-completions")
    assert outcome.status == "failed" and outcome.error["code"] == "model_failed"
    assert words in outcome.error["message"]
    assert len(provider.requests) == 1


def test_a_redirect_is_not_followed(client, provider):
    provider.will(Say(307, "", headers=(("Location", provider.url + "/elsewhere"),)))
    outcome = ask(client, "chat-completions")
    assert outcome.status == "failed" and "HTTP 307" in outcome.error["message"]
    assert len(provider.requests) == 1


@pytest.mark.parametrize("noise", [": still here\n\n", "event: ping\ndata: {\"choices\":[]}\n\n", ""],
                         ids=["comments", "pings", "silence"])
def test_noise_is_no_answer(client, provider, noise):
    """The deadline is on what belongs to the answer, not on bytes."""
    act = Forever(noise)
    # It may stand still for the second that it has, and is asked once more then.
    provider.will(act, *[Say(400, "enough")] * 4)
    outcome = ask(client, "hasty")
    assert outcome.status == "failed" and len(provider.requests) in (2, 3)
    assert act.gone.wait(20), "the connection was not closed"


def test_a_slow_answer_is_one(client, provider):
    """Longer in all than the deadline, never without a word for that long."""
    provider.will(Play("text", piece=200, pause=1.4))
    before = time.monotonic()
    outcome = ask(client, "patient")
    assert outcome.status == "completed" and len(provider.requests) == 1
    assert time.monotonic() - before > 6


# --- cancelling ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_cancelling_closes_the_connection(client, provider, dialect):
    """Within 100 ms; the fastest of some counts, because the machine may have more to do."""
    took, ends = [], []
    for _ in range(5):
        hang = provider.will(Hang())
        turn = client.start(client.session(model=dialect), "wait")
        assert hang.began.wait(20)
        before = time.monotonic()
        ends.append(client.cancel(turn))
        client.end(turn)
        assert hang.gone.wait(20)
        took.append(hang.gone_at - before)
        assert len(provider.requests) == 1
    assert min(took) < 0.1 and statistics.median(took) < 2, took
    assert [end.status for end in ends].count(200) >= 3, ends


def test_cancelling_between_attempts(client, provider):
    provider.will(Say(429, "", headers=(("Retry-After", "100"),)))
    turn = client.start(client.session(model="responses"), "wait")
    eventually(lambda: provider.requests, 20, "the first attempt")
    client.end(turn)
