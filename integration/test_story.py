"""The story of "make demo", step by step, told by its own functions, and judged harder."""

import subprocess
import time

import pytest

from client import Client
from contract import CONTRACT
from daemon import CONFINE, Daemon
from rules import counters, remove_forward
from world import ADDRESSES, ROOT, demo, in_time, punctual

TARGETS = (demo.PUBLIC, demo.HOST_ADDRESS, demo.PRIVATE, demo.METADATA)


class Story(Daemon):
    """A daemon that scripts/serve started: the two tenants are its own."""

    def __init__(self, world):
        super().__init__(world, ())
        option = ["--test"] if ADDRESSES else []
        self.directory = self.var
        mode = [f"--confine={CONFINE}"] if CONFINE else []
        self.spawn([f"{ROOT}/scripts/serve", *option, world.programs, self.var, "0", *mode],
                   prefix=[])
        self.wait_ready()
        demo.PORT = self.port

    def adopt(self, name, tenant_id):
        """Lets the harness find the tenant's processes."""
        self.tenants[name] = type("Tenant", (), {"id": tenant_id})()

    def token(self, name):
        with open(f"{self.var}/tokens/{name}", encoding="utf-8") as f:
            return f.read().strip()

    def actor(self, name):
        return demo.Client(self.token(name))


@pytest.fixture(scope="module")
def story(world):
    daemon = Story(world)
    daemon.adopt("acme", "01980000-0000-7000-8000-00000000ac3e")
    daemon.adopt("globex", "01980000-0000-7000-8000-00000091b0e5")
    yield daemon
    daemon.kill()
    world.expect_nobody()


@pytest.fixture(scope="module")
def told(story):
    """acme's session, and what the steps say."""
    actor = story.actor("acme")
    return actor, actor.call("POST", "/v1/sessions", {"model": "demo"}, 201)["id"], []


def test_the_programs_that_serve_are_these(story):
    assert story.process.pid and f"{story.world.programs}/cloisterd" in \
        story.server().arguments()[0]
    assert story.server().status("Uid").split()[0] != "0"
    assert story.server().status("Groups") == ""
    assert story.server().status("NoNewPrivs") == "1"
    assert int(story.server().status("CapBnd"), 16) == 0


def test_health(story):
    demo.health(demo.Client(), lambda _line: None)
    described = Client(story.port).request("GET", "/openapi.json")
    assert described.raw == CONTRACT.bytes


def test_who_is_there(told):
    actor, session, lines = told
    demo.who_is_there(actor, session, lines.append)
    assert any(line.startswith("uid=0(root)") for line in lines)


def test_events_as_they_happen(told):
    actor, session, lines = told
    demo.events_as_they_happen(actor, session, lines.append)


def test_a_file(told, story):
    actor, session, lines = told
    demo.a_file(actor, session, story, lines.append)


def test_egress(told, story):
    actor, session, lines = told

    def attempt():
        before = counters(story, "acme")
        demo.egress(actor, session, lines.append)
        after = counters(story, "acme")
        grown = [after[name] - before[name] for name in ("accepted", "refused")]
        assert grown[0] >= 1 and grown[1] >= 3, grown
        # A first packet whose answer is late is sent once more.
        in_time(grown == [1, 3], f"counted: {grown}")

    punctual(attempt)


def test_a_stranger(told, story):
    _actor, session, lines = told
    demo.a_stranger(story.actor("globex"), session, lines.append)


def test_without_the_forward_chain_egress_fails(story):
    """What refuses is the policy and nothing else: without it all four answer."""
    actor = story.actor("globex")
    session = actor.call("POST", "/v1/sessions", {"model": "demo"}, 201)["id"]
    actor.run(session, "true")
    demo.egress(actor, session, lambda _line: None)
    before = counters(story, "globex")
    remove_forward(story, "globex")
    with pytest.raises(demo.Failure, match="was not refused at once"):
        demo.egress(actor, session, lambda _line: None)
    inside = demo.probes(actor.run(session, demo.PROBE.format(" ".join(TARGETS))))
    assert {a: status for a, (status, _, _) in inside.items()} == dict.fromkeys(TARGETS, 200)
    assert counters(story, "globex") == before


def test_the_other_tenant_keeps_its_rules(told, story):
    actor, session, lines = told
    demo.egress(actor, session, lines.append)


def test_a_clean_stop(story):
    running = story.tree()
    assert len(running) > 10
    start = time.monotonic()
    assert story.stop() == 0, story.log()
    assert time.monotonic() - start < 20  # nothing runs that it would wait for
    pids = ",".join(str(p.pid) for p in running)
    left = subprocess.run(["ps", "-o", "pid,user,args", "-p", pids], capture_output=True,
                          text=True, check=False).stdout
    assert "cloister" not in left, left
