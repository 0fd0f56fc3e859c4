"""GET /metrics: who may read it, whether a reader understands it, and whether it counts."""

import os
import secrets
import signal
import subprocess

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from contract import CONTRACT
from daemon import ENVIRONMENT, Daemon, make_directory, write_file
from provider.models import declare, entry
from provider.server import Call, Say
from test_operate import status
from test_reload import Registry
from world import eventually

# What there is, by its type: the values of each label, None where they are not the program's.
FAMILIES = {
    "counter": {
        "cloister_http_requests": {"route": None, "status": None},
        "cloister_turns": {"state": {"completed", "failed", "cancelled"}},
        "cloister_sandbox_starts": {"result": {"running", "failed", "limit", "disk_full"}},
        "cloister_sandbox_ends": {"cause": {"ended", "oom", "pids", "disk_full", "lost"}},
        "cloister_execs": {"reason": {"exited", "timeout", "cancelled", "lost", "oom", "pids",
                                      "disk_full"}},
        "cloister_exec_output_bytes": {"stream": {"stdout", "stderr"}},
        "cloister_file_bytes": {"direction": {"read", "written"}},
        "cloister_event_streams": {},
        "cloister_event_stream_resets": {},
        "cloister_events": {},
        "cloister_model_calls": {"result": {"answered", "failed"}},
        "cloister_model_tokens": {"kind": {"input", "output", "cached"}},
        "cloister_wrong_tokens": {"answer": {"refused", "throttled"}},
        "cloister_database_connects": {},
        "cloister_database_wait_timeouts": {},
    },
    "histogram": {
        "cloister_http_request_seconds": {"route": None, "le": None},
        "cloister_sandbox_start_seconds": {"le": None},
        "cloister_model_answer_seconds": {"le": None},
    },
    "gauge": {
        "cloister_instance": {"instance": None},
        "cloister_up_seconds": {},
        "cloister_draining": {},
        "cloister_turns": {"state": {"running", "queued", "waiting"}},
        "cloister_sandboxes": {"state": {"starting", "running", "ending"}},
        "cloister_event_streams_open": {},
        "cloister_database_connections": {"state": {"busy", "idle"}},
        "cloister_database_connections_max": {},
        "cloister_tenants": {},
        "cloister_tenant_turns": {"tenant": None, "state": {"running", "queued", "waiting"}},
        "cloister_tenant_event_streams": {"tenant": None},
    },
}
OF_TENANTS = {name for name in FAMILIES["gauge"] if name.startswith("cloister_tenant_")}


class Metrics:
    def __init__(self, daemon, token):
        self.client = daemon.client()
        self.client.token = token

    def read(self):
        """name to {labels: value}, as the client library of Prometheus reads it."""
        answer = self.client.request("GET", "/metrics")
        assert answer.status == 200, answer
        assert answer.header("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
        self.families = list(parse(answer.raw.decode()))
        found = {}
        for family in self.families:
            assert family.documentation and family.type in ("counter", "gauge", "histogram")
            for sample in family.samples:
                labels = tuple(sorted(sample.labels.items()))
                assert labels not in found.setdefault(sample.name, {}), sample
                found[sample.name][labels] = sample.value
        return found

    def value(self, name, **labels):
        return self.read().get(name, {}).get(tuple(sorted(labels.items())), 0)

    def since(self):
        """What tells by how much a sample, which is there, has grown since now."""
        before = self.read()

        def grown(name, **labels):
            key = tuple(sorted(labels.items()))
            return self.read()[name][key] - before[name][key]

        def to(number, name, **labels):
            """So much, in a moment: who is answered may know of a thing before it counts."""
            eventually(lambda: grown(name, **labels) >= number, 10, f"{number} of {name} {labels}")
            assert grown(name, **labels) == number

        grown.to = to
        return grown


def observe(daemon, *options, **changed):
    token = secrets.token_hex(32)
    write_file(f"{daemon.var}/metrics", token)
    daemon.options += [f"--metrics-token-file={daemon.var}/metrics", *options]
    daemon.start(**changed)
    daemon.metrics = Metrics(daemon, token)
    return daemon


@pytest.fixture(scope="module")
def observed(world):
    daemon = observe(Daemon(world, ("acme", "globex")), "--max-active-sandboxes=1",
                     "--event-replay-limit=2")
    yield daemon
    assert daemon.stop() == 0
    world.daemons.remove(daemon)


@pytest.fixture(scope="module")
def served(world, provider):
    """One with a model of a provider, whose tokens it counts."""
    daemon = Daemon(world, ("acme", "globex"))
    models = declare(daemon, entry("near", "chat-completions", provider.url))
    yield observe(daemon, "--max-failed-attempts=3", models=models)
    assert daemon.stop() == 0
    world.daemons.remove(daemon)


def test_its_own_token_and_no_other(observed):
    for token, status in ((observed.tenants["acme"].token, 401), (secrets.token_hex(32), 401),
                          (None, 401), (observed.metrics.client.token, 200)):
        client = observed.client()
        client.token = token
        assert client.request("GET", "/metrics").status == status
    # And it opens nothing else.
    assert observed.metrics.client.request("GET", "/v1/models").status == 401
    assert observed.metrics.client.request("POST", "/metrics", {}).status == 401


def test_without_a_token_file_there_is_none(cloister, acme):
    for client in (acme, cloister.client()):
        answer = client.request("GET", "/metrics")
        assert (answer.status, answer.code) == (404, "route_not_found")


def test_a_token_that_cannot_be_used(make_daemon):
    daemon = make_daemon(("acme",))
    tenant = daemon.tenants["acme"]
    inside = f"{tenant.workspace}/token"
    for path, text, fault in (
            (tenant.token_file, tenant.token, "holds the token of a tenant"),
            (inside, secrets.token_hex(32), "lies inside the workspace of acme, who can read it"),
            (f"{daemon.var}/metrics", "x" * 40, "it is one character, repeated"),
            (f"{daemon.var}/nothing", None, "No such file or directory")):
        if text:
            write_file(path, text)
        code, lines = daemon.fail(f"--metrics-token-file={path}")
        assert code == 2 and "--metrics-token-file" in lines[-1] and fault in lines[-1], lines


def test_every_family_with_its_labels(observed):
    observed.client("acme").request("GET", "/v1/models")
    observed.metrics.read()
    found = {kind: {} for kind in FAMILIES}
    for family in observed.metrics.families:
        labels = found[family.type].setdefault(family.name, {})
        for sample in family.samples:
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    for kind, families in FAMILIES.items():
        assert set(found[kind]) == set(families), kind
        for name, labels in families.items():
            assert set(found[kind][name]) == set(labels), name
            for label, values in labels.items():
                assert values is None or found[kind][name][label] == values, name
    for name in OF_TENANTS:
        assert found["gauge"][name]["tenant"] == {"acme", "globex"}


def test_turns_commands_bytes_and_sandboxes(observed):
    metrics, acme = observed.metrics, observed.client("acme")
    grown = metrics.since()
    session = acme.session()
    acme.run(session, "$ printf 12345; printf 123 >&2")
    acme.run(session, "@write_file {\"path\":\"/workspace/a\",\"content\":\"1234567\"}")
    grown.to(2, "cloister_turns_total", state="completed")
    grown.to(1, "cloister_execs_total", reason="exited")
    grown.to(5, "cloister_exec_output_bytes_total", stream="stdout")
    grown.to(3, "cloister_exec_output_bytes_total", stream="stderr")
    grown.to(7, "cloister_file_bytes_total", direction="written")
    eventually(lambda: grown("cloister_model_calls_total", result="answered") >= 2, 10, "it counts")
    assert grown("cloister_model_tokens_total", kind="input") > 0
    assert metrics.value("cloister_database_connections_max") == 15
    eventually(lambda: metrics.value("cloister_database_connections", state="idle") >= 1, 10,
               "one is idle")
    grown.to(1, "cloister_sandbox_starts_total", result="running")
    grown.to(1, "cloister_sandbox_start_seconds_count")
    assert 0 < grown("cloister_sandbox_start_seconds_sum") < 600
    # The one that there may be is acme's.
    globex = observed.client("globex")
    assert globex.run(globex.session(), "$ true").error["code"] == "sandbox_limit"
    grown.to(1, "cloister_sandbox_starts_total", result="limit")
    grown.to(1, "cloister_turns_total", state="failed")
    turn = acme.start(session, "$ sleep 600")
    acme.wait_for(turn, "running")
    eventually(lambda: metrics.value("cloister_tenant_turns", tenant="acme", state="running") == 1,
               10, "a gauge of the tenant")
    assert metrics.value("cloister_turns", state="running") == 1
    acme.end(turn)
    grown.to(1, "cloister_turns_total", state="cancelled")
    eventually(lambda: metrics.value("cloister_sandboxes", state="running") == 1, 10, "it runs on")
    assert metrics.value("cloister_tenants") == 2


def run(client, provider, *acts):
    provider.will(*acts)
    return client.run(client.session(), "go")


def test_answers_of_a_model(served, provider):
    grown = served.metrics.since()
    assert run(served.client("acme"), provider, "text").status == "completed"
    # As integration/provider/scripts/chat-completions/text.sse has them.
    for kind, number in (("input", 31), ("output", 12), ("cached", 16)):
        grown.to(number, "cloister_model_tokens_total", kind=kind)
    grown.to(1, "cloister_model_calls_total", result="answered")
    assert grown("cloister_model_calls_total", result="failed") == 0
    grown.to(1, "cloister_model_answer_seconds_count")
    assert 0 < grown("cloister_model_answer_seconds_sum") < 600
    assert run(served.client("acme"), provider, Say(401)).error["code"] == "model_failed"
    grown.to(1, "cloister_model_calls_total", result="failed")
    grown.to(1, "cloister_model_calls_total", result="answered")


def test_files_and_commands_by_their_end(served, provider):
    grown, acme = served.metrics.since(), served.client("acme")
    write_file(f"{served.tenants['acme'].workspace}/seven", "1234567")
    run(acme, provider, Call("read_file", {"path": "/workspace/seven"}), "text")
    grown.to(7, "cloister_file_bytes_total", direction="read")
    assert grown("cloister_file_bytes_total", direction="written") == 0
    run(acme, provider, Call("shell", {"command": "sleep 600", "timeoutMs": 100}), "text")
    grown.to(1, "cloister_execs_total", reason="timeout")
    provider.will(Call("shell", {"command": "echo begun; sleep 600"}))
    with acme.events() as events:
        turn = acme.start(acme.session(), "go")
        events.until_output(turn, "begun")
        acme.end(turn)
        events.until_end(turn)
    grown.to(1, "cloister_execs_total", reason="cancelled")
    assert grown("cloister_execs_total", reason="exited") == 0


def test_a_sandbox_that_did_not_start(served, provider):
    grown, workspace = served.metrics.since(), served.tenants["globex"].workspace
    os.rename(workspace, workspace + ".old")
    make_directory(workspace)
    outcome = run(served.client("globex"), provider, Call("shell", {"command": "true"}))
    assert outcome.error["code"] == "sandbox_unavailable"
    grown.to(1, "cloister_sandbox_starts_total", result="failed")
    assert grown("cloister_sandbox_starts_total", result="running") == 0
    assert grown("cloister_sandbox_start_seconds_count") == 0


def test_wrong_tokens_that_were_throttled(served):
    grown, wrong = served.metrics.since(), served.client()
    wrong.token = secrets.token_hex(32)
    statuses = [wrong.request("GET", "/v1/models").status for _ in range(5)]
    assert statuses[:3] == [401] * 3 and 429 in statuses, statuses
    for answer, number in (("refused", 401), ("throttled", 429)):
        grown.to(statuses.count(number), "cloister_wrong_tokens_total", answer=answer)


def test_connections_to_the_database(observed):
    """One that was lost is opened again, and counts."""
    acme, metrics = observed.client("acme"), observed.metrics
    acme.session()
    before = metrics.value("cloister_database_connects_total")
    assert before >= 1
    database = f"ct_{observed.tenants['acme'].id.replace('-', '')}"
    lost = [p for p in observed.tree() if p.name == "postgres" and database in " ".join(p.arguments())]
    assert lost
    for process in lost:
        process.kill(signal.SIGTERM)
    eventually(lambda: not any(process.lives() for process in lost), 30, "their end")
    acme.session()
    assert metrics.value("cloister_database_connects_total") > before


def test_the_run_itself(make_daemon):
    daemon = observe(make_daemon(("acme",)))
    metrics, acme = daemon.metrics, daemon.client("acme")
    assert metrics.value("cloister_instance", instance=status(daemon)["instance"]) == 1
    begun = metrics.value("cloister_up_seconds")
    eventually(lambda: metrics.value("cloister_up_seconds") > begun, 10, "time that goes by")
    assert metrics.read()["cloister_draining"] == {(): 0}
    with acme.events() as events:
        turn = acme.start(acme.session(), "$ echo begun; sleep 600")
        events.until_output(turn, "begun")
        with subprocess.Popen([f"{daemon.world.programs}/cloisterd", "drain", "--state",
                               daemon.state], stdout=subprocess.PIPE, text=True,
                              env=ENVIRONMENT) as drain:
            assert drain.stdout.readline() == "1 turn still runs\n"
            assert metrics.read()["cloister_draining"] == {(): 1}
            acme.end(turn)
            assert drain.communicate(timeout=60)[0] == "nothing runs\n"
    assert drain.returncode == 0 and daemon.stop() == 0


def test_tenants_by_name_while_they_are_few(make_daemon):
    """A hundred are; with one more there is none by name, and the sums stay."""
    daemon = make_daemon(("acme",))
    registry = Registry(daemon)
    for number in range(99):
        registry.add(f"tenant-{number}")
    registry.write()
    metrics = observe(daemon).metrics
    turn = daemon.client("acme").start(daemon.client("acme").session(), "? go on")
    daemon.client("acme").wait_for(turn, "waiting_for_input")

    def named():
        found = metrics.read()
        return [{dict(labels)["tenant"] for labels in found.get(name, {})} for name in OF_TENANTS]

    def waiting():
        return metrics.value("cloister_turns", state="waiting")

    assert metrics.value("cloister_tenants") == 100 and waiting() == 1
    assert named() == [set(registry.entries)] * len(OF_TENANTS)
    assert metrics.value("cloister_tenant_turns", tenant="acme", state="waiting") == 1
    registry.add("one-more")
    registry.reload()
    assert metrics.value("cloister_tenants") == 101 and waiting() == 1
    assert named() == [set()] * len(OF_TENANTS)
    assert not OF_TENANTS & {family.name for family in metrics.families}
    del registry.entries["one-more"]
    registry.reload()
    assert metrics.value("cloister_tenants") == 100 and waiting() == 1
    assert named() == [set(registry.entries)] * len(OF_TENANTS)
    assert daemon.stop() == 0


def test_a_killed_sandbox_is_not_one_that_ended(observed):
    metrics, acme = observed.metrics, observed.client("acme")
    acme.run(acme.session(), "$ true")
    before = metrics.read()["cloister_sandbox_ends_total"]
    observed.sentry("acme").kill()
    eventually(lambda: not observed.running("acme"), 30, "its runner has ended")
    lost = (("cause", "lost"),)
    eventually(lambda: metrics.value("cloister_sandbox_ends_total", cause="lost") == before[lost] + 1,
               10, "its end is counted")
    after = metrics.read()["cloister_sandbox_ends_total"]
    assert after == {**before, lost: before[lost] + 1}


def test_requests_by_route_and_status(observed):
    metrics, acme = observed.metrics, observed.client("acme")
    route = "GET /v1/turns/{id}"
    before = metrics.value("cloister_http_requests_total", route=route, status="404")
    count = metrics.value("cloister_http_request_seconds_count", route=route)
    for _ in range(5):
        acme.request("GET", "/v1/turns/01980000-0000-7000-8000-000000000000")
    eventually(lambda: metrics.value("cloister_http_requests_total", route=route, status="404") ==
               before + 5, 10, "they count")
    eventually(lambda: metrics.value("cloister_http_request_seconds_count", route=route) ==
               count + 5,
               10, "they count")
    # What a client makes up is no label.
    acme.request("GET", "/v1/made-up-by-a-client")
    acme.request("BREW", "/v1/models")
    names = {dict(labels)["route"] for labels in metrics.read()["cloister_http_requests_total"]}
    known = {f"{method} {path}" for method, path, _ in CONTRACT.operations()}
    assert names <= known | {"none"}


def test_histograms_are_whole(observed):
    metrics = observed.metrics
    metrics.read()
    for family in metrics.families:
        if family.type != "histogram":
            continue
        series = {}
        for sample in family.samples:
            key = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
            series.setdefault(key, {"buckets": []})
            if sample.name.endswith("_bucket"):
                series[key]["buckets"].append((float(sample.labels["le"]), sample.value))
            else:
                series[key][sample.name.rsplit("_", 1)[1]] = sample.value
        for each in series.values():
            bounds, counts = zip(*each["buckets"])
            assert list(bounds) == sorted(bounds) and bounds[-1] == float("inf")
            assert list(counts) == sorted(counts) and counts[-1] == each["count"]


def test_streams_resets_and_wrong_tokens(observed):
    metrics, acme = observed.metrics, observed.client("acme")
    grown = metrics.since()
    session = acme.session()
    with acme.events():
        eventually(lambda: metrics.value("cloister_event_streams_open") == 1, 10, "one is open")
        assert metrics.value("cloister_tenant_event_streams", tenant="acme") == 1
        acme.run(session, "hello")
    with acme.events(last_id=1):  # the window holds two events
        eventually(lambda: grown("cloister_event_stream_resets_total") >= 1, 10, "a gap")
    grown.to(2, "cloister_event_streams_total")
    eventually(lambda: grown("cloister_events_total") >= 3, 10, "it counts")
    wrong = observed.client()
    wrong.token = secrets.token_hex(32)
    assert wrong.request("GET", "/v1/models").status == 401
    grown.to(1, "cloister_wrong_tokens_total", answer="refused")


def test_nothing_of_a_tenant_but_its_name(observed):
    acme = observed.client("acme")
    session = acme.session()
    acme.run(session, "a-prompt-of-acme")
    text = observed.metrics.client.request("GET", "/metrics").raw.decode()
    for secret in (acme.token, session, "a-prompt-of-acme", observed.tenants["acme"].id):
        assert secret not in text
