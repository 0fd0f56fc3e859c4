"""How many sandboxes run at once: one more is refused by name, and may try again."""

from world import eventually


def test_one_sandbox_too_many(make_daemon):
    daemon = make_daemon(options=["--max-active-sandboxes=1", "--sandbox-idle-seconds=2"]).start()
    acme, globex = daemon.client("acme"), daemon.client("globex")
    mine, theirs = acme.session(), globex.session()
    busy = acme.start(mine, '@shell {"command": "sleep 6; echo slept"}')
    eventually(lambda: daemon.running("acme"), 20, "acme's sandbox")
    for _ in range(4):
        refused = globex.tool(theirs, "shell", command="echo first")
        assert (refused.status, refused.error["code"]) == ("failed", "sandbox_limit"), refused.turn
    assert daemon.log().count("does not start") == 1, "a tenant fills the log"
    assert "--max-active-sandboxes" in refused.error["message"]
    assert not daemon.running("globex")
    outcome = acme.wait(busy)
    assert outcome.status == "completed" and "slept" in str(outcome.output)
    eventually(lambda: not daemon.running("acme"), 20, "acme's sandbox idle")
    assert "second" in str(globex.tool(theirs, "shell", command="echo second").output)
    assert daemon.stop() == 0
