"""GET /metrics: who may read it, whether a reader understands it, and whether it counts."""

import secrets

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from contract import CONTRACT
from daemon import Daemon, write_file
from world import eventually


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


@pytest.fixture(scope="module")
def observed(world):
    daemon = Daemon(world, ("acme", "globex"))
    token = secrets.token_hex(32)
    write_file(f"{daemon.var}/metrics", token)
    daemon.options = [f"--metrics-token-file={daemon.var}/metrics", "--max-active-sandboxes=1",
                      "--event-replay-limit=2"]
    daemon.start()
    daemon.metrics = Metrics(daemon, token)
    yield daemon
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


def test_turns_commands_bytes_and_sandboxes(observed):
    metrics, acme = observed.metrics, observed.client("acme")
    before = metrics.read()

    def grown(name, **labels):
        return metrics.value(name, **labels) - before.get(name, {}).get(
            tuple(sorted(labels.items())), 0)

    session = acme.session()
    acme.run(session, "$ printf 12345; printf 123 >&2")
    acme.run(session, "@write_file {\"path\":\"/workspace/a\",\"content\":\"1234567\"}")
    assert grown("cloister_turns_total", state="completed") == 2
    assert grown("cloister_execs_total", reason="exited") == 1
    assert grown("cloister_exec_output_bytes_total", stream="stdout") == 5
    assert grown("cloister_exec_output_bytes_total", stream="stderr") == 3
    assert grown("cloister_file_bytes_total", direction="written") == 7
    assert grown("cloister_model_calls_total", result="answered") >= 2
    assert grown("cloister_model_tokens_total", kind="input") > 0
    assert metrics.value("cloister_database_connections_max") == 15
    assert metrics.value("cloister_database_connections", state="idle") >= 1
    assert grown("cloister_sandbox_starts_total", result="running") == 1
    assert grown("cloister_sandbox_start_seconds_count") == 1
    assert 0 < grown("cloister_sandbox_start_seconds_sum") < 600
    # The one that there may be is acme's.
    globex = observed.client("globex")
    assert globex.run(globex.session(), "$ true").error["code"] == "sandbox_limit"
    assert grown("cloister_sandbox_starts_total", result="limit") == 1
    assert grown("cloister_turns_total", state="failed") == 1
    turn = acme.start(session, "$ sleep 600")
    acme.wait_for(turn, "running")
    eventually(lambda: metrics.value("cloister_tenant_turns", tenant="acme", state="running") == 1,
               10, "a gauge of the tenant")
    assert metrics.value("cloister_turns", state="running") == 1
    acme.cancel(turn)
    assert grown("cloister_turns_total", state="cancelled") == 1
    assert metrics.value("cloister_sandboxes", state="running") == 1
    assert metrics.value("cloister_tenants") == 2


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
    assert metrics.value("cloister_http_requests_total", route=route, status="404") == before + 5
    assert metrics.value("cloister_http_request_seconds_count", route=route) == count + 5
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
    before = metrics.read()

    def grown(name, **labels):
        return metrics.value(name, **labels) - before[name][tuple(sorted(labels.items()))]

    session = acme.session()
    with acme.events():
        eventually(lambda: metrics.value("cloister_event_streams_open") == 1, 10, "one is open")
        assert metrics.value("cloister_tenant_event_streams", tenant="acme") == 1
        acme.run(session, "hello")
    with acme.events(last_id=1):  # the window holds two events
        eventually(lambda: grown("cloister_event_stream_resets_total") >= 1, 10, "a gap")
    assert grown("cloister_event_streams_total") == 2
    assert grown("cloister_events_total") >= 3
    wrong = observed.client()
    wrong.token = secrets.token_hex(32)
    assert wrong.request("GET", "/v1/models").status == 401
    assert grown("cloister_wrong_tokens_total", answer="refused") == 1


def test_nothing_of_a_tenant_but_its_name(observed):
    acme = observed.client("acme")
    session = acme.session()
    acme.run(session, "a-prompt-of-acme")
    text = observed.metrics.client.request("GET", "/metrics").raw.decode()
    for secret in (acme.token, session, "a-prompt-of-acme", observed.tenants["acme"].id):
        assert secret not in text
