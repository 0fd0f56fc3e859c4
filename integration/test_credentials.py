"""Tokens by hash and by file, new ones, rotation, and a flood of wrong ones."""

import hashlib
import http.client
import json
import random
import re
import secrets
import socket
import subprocess
import threading
import time
import uuid

import pytest

from contract import CONTRACT
from daemon import write_file
from ranks import differ, distance, middle
from world import BUILD


def draw(*words):
    """What "token new" prints: the credential of a registry, the line for NixOS, the token."""
    done = subprocess.run([f"{BUILD}/cloisterd", "token", "new", *words], capture_output=True,
                          text=True, check=True)
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    entry = re.search(r'\{"id": "([0-9a-f-]{36})", "tokenHash": "([0-9a-f]{64})"\}', done.stdout)
    nixos = next(line for line in lines if line.startswith("services."))
    return entry.groups(), nixos, lines[-1]


def with_credentials(daemon, name, credentials):
    entries = [t.entry() for t in daemon.tenants.values()]
    entry = next(e for e in entries if e["name"] == name)
    entry["credentials"] = credentials
    daemon.write_registry({"version": 1, "tenants": entries})


def reload(daemon, code=0):
    done = subprocess.run([f"{daemon.world.programs}/cloisterd", "reload", "--state", daemon.state],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done
    return done.stderr


def status_of(daemon, token):
    client = daemon.client()
    client.token = token
    return client.request("GET", "/v1/models").status


def test_a_new_token_and_its_hash():
    (identity, digest), nixos, token = draw("--tenant", "acme")
    assert hashlib.sha256(token.encode()).hexdigest() == digest
    assert nixos == f'services.cloister.tenants.acme.tokenHashes.main = "{digest}";'
    assert re.fullmatch(r"cloister_[A-Za-z0-9_-]{43}", token)
    (other, _), nixos, another = draw()
    assert token != another and identity != other and "tenants.NAME." in nixos


def test_rotation_with_hashes_and_files(make_daemon):
    """Two side by side; then the first is gone, and what it held open with it."""
    daemon = make_daemon(("acme", "globex"))
    file = daemon.tenants["acme"].entry()["credentials"][0]
    (identity, digest), _, token = draw()
    hashed = {"id": identity, "tokenHash": digest}
    daemon.start()
    assert (status_of(daemon, daemon.tenants["acme"].token), status_of(daemon, token)) == (200, 401)
    with_credentials(daemon, "acme", [file, hashed])
    reload(daemon)
    assert (status_of(daemon, daemon.tenants["acme"].token), status_of(daemon, token)) == (200, 200)
    new = daemon.client("acme")
    new.token = token
    with daemon.client("acme").events() as ending, new.events() as staying, \
            daemon.client("globex").events() as foreign:
        with_credentials(daemon, "acme", [hashed])
        reload(daemon)
        assert ending.ended.wait(20), "the stream of a token that is gone lives on"
        turn = new.start(new.session(), "hello")
        staying.until_end(turn)
        assert not foreign.ended.is_set()
    assert (status_of(daemon, daemon.tenants["acme"].token), status_of(daemon, token)) == (401, 200)
    # A file may hold a hash, and is read again.
    (_, digest), _, third = draw()
    write_file(daemon.tenants["acme"].token_file, f"sha256:{digest}\n")
    with_credentials(daemon, "acme", [file])
    reload(daemon)
    assert (status_of(daemon, token), status_of(daemon, third)) == (401, 200)
    assert status_of(daemon, f"sha256:{digest}") == 401 == status_of(daemon, digest)
    write_file(daemon.tenants["acme"].token_file, daemon.tenants["acme"].token)
    reload(daemon)
    assert (status_of(daemon, third), status_of(daemon, daemon.tenants["acme"].token)) == (401, 200)
    assert daemon.stop() == 0


@pytest.mark.parametrize("text, fault", [
    ("changeme", "the token is shorter than 32 bytes"),
    ("changeme-changeme-changeme-changeme", 'it has "changeme" in it'),
    ("x" * 64, "it is one character, repeated"),
    ("sha256:abc", "64 hex digits")])
def test_what_is_no_token_is_refused_by_name(make_daemon, text, fault):
    daemon = make_daemon(("acme",))
    write_file(daemon.tenants["acme"].token_file, text)
    code, lines = daemon.fail()
    assert code == 2 and any(fault in line and "credentials[0].tokenFile" in line for line in lines)


# --- floods ------------------------------------------------------------------------------------


def attempt(connection, token, more=None):
    connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {token}", **(more or {})})
    answer = connection.getresponse()
    body = answer.read()
    headers = sorted((k, "*" if k == "X-Request-ID" else v) for k, v in answer.getheaders()
                     if k != "Date")
    CONTRACT.check("GET", "/v1/models", answer.status, answer.getheaders(), body)
    return answer.status, headers, re.sub(rb'"requestId":"[^"]*"', b"", body)


def declared(daemon):
    """{tenant: the id of its credential}, as the daemon has it."""
    with open(daemon.registry, encoding="utf-8") as f:
        return {t["name"]: t["credentials"][0]["id"] for t in json.load(f)["tenants"]}


def connect(daemon, source="127.0.0.1"):
    return http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30, source_address=(source, 0))


# The next two are fixtures of the virtual machine's, too, of the service that is installed there.


@pytest.fixture
def impatient(make_daemon):
    """A daemon that takes twenty wrong tokens from an address."""
    daemon = make_daemon(("acme", "globex"), options=["--max-failed-attempts=20"]).start()
    yield daemon
    assert daemon.stop() == 0


@pytest.fixture
def patient(make_daemon):
    """A daemon that takes as many as there are."""
    daemon = make_daemon(("acme", "globex"), options=["--max-failed-attempts=1000000"]).start()
    yield daemon
    assert daemon.stop() == 0


FLOOD = 400


def test_a_flood_touches_nobody_else(impatient):
    """From one address, which all have here: the throttle keeps no right token out, and no other
    address."""
    daemon = impatient
    globex = daemon.client("globex")
    known = declared(daemon)["acme"]
    seen = {"known": [], "unknown": []}

    def flood(kind):
        connection = connect(daemon)
        for _ in range(FLOOD):
            identity = known if kind == "known" else uuid.uuid4()
            seen[kind].append(attempt(connection, f"{identity}.{secrets.token_hex(16)}"))
        connection.close()

    threads = [threading.Thread(target=flood, args=(kind,)) for kind in seen]
    for thread in threads:
        thread.start()
    session = globex.session()
    assert globex.run(session, "hello").text == "hello"
    while any(t.is_alive() for t in threads):
        assert globex.request("GET", "/v1/models").status == 200
    for thread in threads:
        thread.join()
    kinds = {}
    for kind, rows in seen.items():
        assert len(rows) == FLOOD
        refused = {(status, tuple(headers), body) for status, headers, body in rows}
        assert {status for status, _, _ in refused} <= {401, 429}
        kinds[kind] = {(status, tuple(h for h in headers if h[0] != "Retry-After"), body)
                       for status, headers, body in refused}
    statuses = [status for rows in seen.values() for status, _, _ in rows]
    assert statuses.count(429) > FLOOD  # 20 at once, and one in three seconds
    both = kinds["known"] | kinds["unknown"]
    assert len(both) == 2, "answers differ by what is in the token"
    assert "too many wrong tokens from 127.0.0.1" in daemon.log()
    assert known not in daemon.log().split("too many wrong tokens", 1)[1].splitlines()[0]
    connection = connect(daemon, "127.0.0.2")
    assert attempt(connection, f"{known}.{secrets.token_hex(16)}")[0] == 401
    connection.close()
    # Its address is the same, and its token right.
    assert globex.request("GET", "/v1/models").status == 200
    assert daemon.client().request("GET", "/v1/models").status == 401  # none was sent


def noise(draw, n, busy):
    """Times about 100 us, as a machine gives them that has other things to do as well."""
    times = [100 + 8 * draw.lognormvariate(0, 1) + (draw.random() < 0.02) * draw.random() * 5000
             for _ in range(n)]
    for i in range(n // 3, n // 2 if busy else 0):
        times[i] *= 3
    return times


@pytest.mark.parametrize("busy", [False, True])
def test_what_is_called_a_difference(busy):
    """2 us of 100 are, and none are not; nor is one that only many samples make certain."""
    for seed in range(12):
        draw = random.Random(seed)
        one, other = (noise(draw, 8000, busy) for _ in range(2))
        assert not differ(one, other), seed
        assert differ([t + 2 for t in one], other) and differ(one, [t + 2 for t in other]), seed
    flat = [100 + i % 10 / 100 for i in range(4000)]
    assert not differ([t + 0.5 for t in flat], flat) and distance([t + 0.5 for t in flat], flat) > 50
    assert distance(flat, flat) == 0


class Prober:
    """Sends wrong tokens over one connection, and measures until the answer is there."""

    def __init__(self, daemon):
        self.socket = socket.create_connection(("127.0.0.1", daemon.port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def microseconds(self, question, status=b"401"):
        began = time.perf_counter_ns()
        self.socket.sendall(question)
        answer = self.socket.recv(65536)
        while not answer.rstrip().endswith(b"}"):
            answer += self.socket.recv(65536)
        took = time.perf_counter_ns() - began
        assert answer.startswith(b"HTTP/1.1 %s " % status), answer
        return took / 1000


def questions(ids):
    """One for each id, in an order that chance decides; all are made in the same way."""
    made = []
    for name, identity in ids.items():
        token = f"{identity or uuid.uuid4()}.{secrets.token_hex(16)}"
        made.append((name, f"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()))
    random.shuffle(made)
    return made


ROUNDS, MOST_ROUNDS = 2000, 20000


class Times:
    """What wrong tokens take that have the id of acme's credential, of globex's (which says what
    the machine itself makes of equals), and of nobody's, in an order that chance decides."""

    def __init__(self, daemon):
        self.prober = Prober(daemon)
        known = declared(daemon)
        self.ids = {"acme": known["acme"], "globex": known["globex"], "nobody": None}
        self.series = {name: [] for name in self.ids}

    def measure(self, rounds=ROUNDS):
        # Beforehand: what is made just before it is sent is sent more slowly.
        for name, question in [q for _ in range(rounds) for q in questions(self.ids)]:
            self.series[name].append(self.prober.microseconds(question))
        return len(self.series["acme"])

    def free(self):
        """What a question takes that needs no token."""
        return [self.prober.microseconds(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"200")
                for _ in range(ROUNDS)]

    def noticed(self, share):
        """Whether a difference of that share would be."""
        equal = self.series["globex"]
        return differ([t + share * middle(equal) for t in equal], self.series["acme"])

    def __str__(self):
        said = {name: f"{middle(series):.1f} us" for name, series in self.series.items()}
        return f"{len(self.series['acme'])} rounds: {said}"

    def tells(self, **share):
        """The pairs between which there is a difference."""
        acme, globex, nobody = self.series.values()
        pairs = {"the equals": (acme, globex), "known and unknown": (acme + globex, nobody)}
        return [name for name, pair in pairs.items() if differ(*pair, **share)]


def test_no_time_tells_a_known_id(patient):
    """Measured until a difference of a fiftieth would be noticed, and in any case one of a tenth."""
    times = Times(patient)
    while times.measure() < MOST_ROUNDS and not times.noticed(1 / 50):
        pass
    print(times)
    assert times.noticed(1 / 10), f"this machine measures nothing: {times}"
    # A hash that were slow to make would load the machine for whoever asks.
    assert middle(times.series["nobody"]) - middle(times.free()) < 1000, times
    assert times.tells() == [], times
    times.prober.socket.close()


def test_a_proxy_says_whose_attempts_they_are(make_daemon):
    daemon = make_daemon(("acme",), options=["--max-failed-attempts=3", "--trusted-proxy=127.0.0.1"])
    daemon.start()
    connection = connect(daemon)

    def status(client):
        return attempt(connection, secrets.token_hex(32), {"X-Forwarded-For": client})[0]

    assert [status("192.0.2.7") for _ in range(4)] == [401, 401, 401, 429]
    # What the client wrote itself stands before what the proxy adds.
    assert status("198.51.100.9, 192.0.2.7") == 429
    assert status("192.0.2.7, 192.0.2.8") == 401
    assert [status(f"2001:db8:0:1::{i}") for i in range(4)] == [401, 401, 401, 429]
    assert status("2001:db8:0:2::1") == 401
    connection.close()
    assert daemon.stop() == 0


def test_nobody_else_says_whose_attempts_they_are(make_daemon):
    daemon = make_daemon(("acme",), options=["--max-failed-attempts=3"]).start()
    connection = connect(daemon)
    statuses = [attempt(connection, secrets.token_hex(32), {"X-Forwarded-For": f"192.0.2.{i}"})[0]
                for i in range(4)]
    assert statuses == [401, 401, 401, 429]
    connection.close()
    assert daemon.stop() == 0
