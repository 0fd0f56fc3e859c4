"""How many sandboxes run at once: one more is refused by name, and may try again."""

from daemon import Gate
from world import eventually


def test_one_sandbox_too_many(make_daemon):
    daemon = make_daemon(options=["--max-active-sandboxes=1", "--sandbox-idle-seconds=2"]).start()
    acme, globex = daemon.client("acme"), daemon.client("globex")
    mine, theirs = acme.session(), globex.session()
    gate = Gate(daemon)
    busy = acme.start(mine, f"$ {gate.wait}; echo waited")
    eventually(lambda: daemon.running("acme"), 20, "acme's sandbox")
    for _ in range(4):
        refused = globex.tool(theirs, "shell", command="echo first")
        assert (refused.status, refused.error["code"]) == ("failed", "sandbox_limit"), refused.turn
    # A line in ten seconds, however often.
    assert 1 <= daemon.log().count("does not start") <= 2, "a tenant fills the log"
    assert "--max-active-sandboxes" in refused.error["message"]
    assert not daemon.running("globex")
    gate.open()
    outcome = acme.wait(busy)
    assert outcome.status == "completed" and "waited" in str(outcome.output)
    daemon.expect_end("acme")
    # It counts until the server knows that it is gone.
    eventually(lambda: "second" in str(globex.tool(theirs, "shell", command="echo second").output),
               20, "room for theirs", 0.2)
    assert daemon.stop() == 0
