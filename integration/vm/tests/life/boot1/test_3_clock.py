"""The clock of the machine is set, far ahead and far back, in the middle of everything."""

import contextlib
import json
import time

import pytest

from client import TERMINAL
from neighbour import at_work

DAY = 86400


@contextlib.contextmanager
def own_clock():
    """A function that sets the clock so many seconds ahead of what it was; at the end it is right."""
    right = time.time() - time.monotonic()

    def ahead(seconds):
        time.clock_settime(time.CLOCK_REALTIME, right + seconds + time.monotonic())

    try:
        yield ahead
    finally:
        ahead(0)


def ask_person(client, **arguments):
    """A question that nobody has answered yet."""
    line = json.dumps({"question": "go on?", "options": ["yes", "no"], **arguments})
    turn = client.start(client.session(), f"@ask_user {line}")
    client.wait_for(turn, "waiting_for_input", 60)
    return turn


def limited(client, seconds):
    """A command that has begun and would never end, with a deadline."""
    line = json.dumps({"command": "echo begun; sleep 6000", "timeoutMs": seconds * 1000})
    with client.events() as events:
        turn = client.start(client.session(), f"@shell {line}")
        events.until_output(turn, "begun", 60)
    return turn


def order(client, session):
    """The turns of a session as its history has them, and as the list of turns does."""
    turns = client.call("GET", f"/v1/turns?sessionId={session}")["data"]
    history = client.call("GET", f"/v1/sessions/{session}/history")["data"]
    return [t["id"] for t in turns][::-1], [entry["turn"]["id"] for entry in history]


@pytest.mark.long  # minutes of it are restarts and deadlines
def test_a_step_of_the_clock_ends_nothing(service, globex):
    """A turn, its stream, an approval that waits and deadlines go on as if there had been none; what
    is made meanwhile has ids of its own, in their order."""
    initech = service.client("initech")
    session, turns = globex.session(), []
    asked, until = ask_person(initech), ask_person(initech, expiresInSeconds=7 * DAY)

    def work(text):
        turns.append(globex.start(session, f"$ echo {text}"))
        assert globex.wait(turns[-1], 120).text == f"{text}\n"
        assert service.client().request("GET", "/readyz").status == 200

    with own_clock() as ahead, globex.events() as events:
        with at_work(service):
            work("before")
            for days in (1, -2):
                running, ending = limited(globex, 3600), limited(globex, 20)
                begin = time.monotonic()
                ahead(days * DAY)
                work(f"{days} days ahead")
                assert globex.wait(ending, 60).text.startswith("begun\n")
                took = time.monotonic() - begin
                assert globex.turn(running)["status"] not in TERMINAL
                globex.cancel(running)
                print(f"{days} days ahead: the deadline of 20 s came {took:.1f} s after the step")
            ahead(-400 * DAY)  # before everything that there is
            work("400 days back")
            for turn in (asked, until):
                assert initech.turn(turn)["status"] == "waiting_for_input"
        # No id is less than one before it, and no event was left out.
        events.until_end(turns[-1], 60)
        ids = [e["id"] for _, _, e in events.seen]
        assert ids == sorted(set(ids)) and turns == sorted(set(turns))
        service.restart()
        work("started in the past")
    work("now")
    listed, history = order(globex, session)
    assert listed == turns and history == turns
    requests = {r["turnId"]: r["id"] for r in initech.call("GET", "/v1/requests")["data"]}
    for turn in (asked, until):
        initech.call("POST", f"/v1/requests/{requests[turn]}/resolve", {"decision": "yes"})
        assert initech.wait(turn, 120).status == "completed"
