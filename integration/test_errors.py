"""Error codes that nothing but a fault, or a flood, produces. That the tests produce every
code of the description is judged in conftest.py."""

import select
import signal
import socket

from raw import read_answer
from test_database import Sql
from world import eventually


def test_a_request_that_does_not_arrive(make_daemon):
    """Its head came, its body does not: 408 after the operator's time, and the end."""
    daemon = make_daemon(("acme",), options=["--request-seconds=3"]).start()
    client = daemon.client("acme")
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=30) as s:
        s.sendall(f"POST /v1/sessions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {client.token}"
                  "\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{".encode())
        assert read_answer(s, "POST", "/v1/sessions") == (408, "request_timeout")
        assert s.recv(1) == b""
    assert client.call("GET", "/v1/sessions")["data"] == []
    assert daemon.stop() == 0


REQUESTS = 8 + 8 * 64 + 20  # those that are worked on, those that wait, and some more


def test_more_requests_than_may_wait(make_daemon):
    """The database is silent, so requests pile up: one too many is told so at once."""
    daemon = make_daemon(("acme",)).start()
    client = daemon.client("acme")
    client.session()
    processes = [daemon.postgres(), *[p for p in daemon.tree() if p.name == "postgres"]]
    head = (f"GET /v1/sessions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {client.token}"
            "\r\nConnection: close\r\n\r\n").encode()
    crowd, told = [], []

    def busy():
        for each in select.select(crowd, [], [], 1)[0]:
            crowd.remove(each)
            with each:
                told.append(read_answer(each, "GET", "/v1/sessions"))
        return (503, "busy") in told

    for process in processes:
        process.kill(signal.SIGSTOP)
    try:
        for _ in range(REQUESTS):
            crowd.append(socket.create_connection(("127.0.0.1", daemon.port), timeout=30))
            crowd[-1].sendall(head)
        eventually(busy, 4, "somebody is told")
        assert set(told) <= {(503, "busy"), (503, "store_unavailable")}, told
    finally:
        for process in processes:
            process.kill(signal.SIGCONT)
        for each in crowd:
            each.close()
    eventually(lambda: client.request("GET", "/v1/sessions").status == 200, 30, "an answer again")
    assert daemon.stop() == 0


def test_rows_that_nobody_understands(make_daemon):
    """Somebody changed the database by hand: it is the server's failure, of that turn alone."""
    daemon = make_daemon(("acme",), options=["--max-running-turns=1"]).start()
    client = daemon.client("acme")
    first, second = client.session(), client.session()
    running = client.start(first, "$ sleep 600")
    client.wait_for(running, "running")
    queued = client.start(second, "x")
    sql = Sql(daemon)
    sql.ask("cloister_owner", sql.database("acme"), f"""
        DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT conname FROM pg_constraint
            WHERE conrelid = 'app.item'::regclass AND contype = 'c'
        LOOP EXECUTE format('ALTER TABLE app.item DROP CONSTRAINT %I', name); END LOOP; END $$;
        UPDATE app.item SET kind = 'odd' WHERE turn = '{queued}'""")
    client.end(running)
    outcome = client.wait(queued)
    assert (outcome.status, outcome.error["code"]) == ("failed", "internal_error")
    answer = client.request("GET", f"/v1/sessions/{second}/history")
    assert (answer.status, answer.code) == (500, "internal_error")
    for text in (outcome.error["message"], answer.json["error"]["message"]):
        assert "odd" not in text and "log" in text
    for name in (queued, answer.json["error"]["requestId"]):
        assert any(name in line and "stored item" in line for line in daemon.log().splitlines())
    assert client.run(first, "the others go on").text == "the others go on"
    assert daemon.stop() == 0


def test_more_turns_than_may_wait_for_a_person(make_daemon):
    daemon = make_daemon(("acme", "globex"),
                         options=["--max-waiting-turns-per-tenant=2"]).start()
    client, other = daemon.client("acme"), daemon.client("globex")
    waiting = [client.start(client.session(), "? go") for _ in range(2)]
    for turn in waiting:
        client.wait_for(turn, "waiting_for_input")
    outcome = client.run(client.session(), "? one more")
    assert (outcome.status, outcome.error["code"]) == ("failed", "waiting_turn_limit")
    assert len(client.call("GET", "/v1/requests")["data"]) == 2
    theirs = other.start(other.session(), "? go")
    other.wait_for(theirs, "waiting_for_input")
    client.end(waiting[0])
    again = client.start(client.session(), "? now")
    client.wait_for(again, "waiting_for_input")
    assert daemon.stop() == 0


def test_a_tenant_without_a_model(make_daemon):
    daemon = make_daemon(("acme", "globex"))
    tenants = [t.entry() for t in daemon.tenants.values()]
    tenants[0]["models"] = ["nowhere"]
    daemon.write_registry({"version": 1, "tenants": tenants})
    daemon.start()
    client = daemon.client("acme")
    assert client.call("GET", "/v1/models")["data"] == []
    for body in ({}, {"model": "demo"}, {"model": "nowhere"}):
        client.call("POST", "/v1/sessions", body, 503, "model_catalog_empty")
    daemon.client("globex").call("POST", "/v1/sessions", {"model": "nowhere"}, 422,
                                 "model_not_available")
    assert daemon.stop() == 0


def test_a_turn_that_says_too_much(make_daemon):
    daemon = make_daemon(("acme",), options=["--max-turn-bytes=200000"]).start()
    client = daemon.client("acme")
    session = client.session()
    call = "$ echo x >>ran; head -c 65000 /dev/zero | tr '\\0' x"
    assert client.run(session, "\n".join([call] * 2)).status == "completed"
    outcome = client.run(session, "\n".join([call] * 6))
    assert (outcome.status, outcome.error["code"]) == ("failed", "turn_too_large")
    assert "--max-turn-bytes" in outcome.error["message"]
    assert client.run(session, "$ wc -l <ran").text == "6\n", "calls beyond the bound ran"
    assert daemon.stop() == 0


def test_a_turn_that_finds_no_room(make_daemon):
    """The answer to its question is kept, and then it has no room to go on."""
    daemon = make_daemon(("acme",), options=["--max-tenant-database-mb=16"]).start()
    client = daemon.client("acme")
    session = client.session()
    turn = client.start(session, "? go")
    client.wait_for(turn, "waiting_for_input")
    request = client.call("GET", "/v1/requests")["data"][0]["id"]
    sql = Sql(daemon)
    sql.ask("cloister_owner", sql.database("acme"),
            "CREATE TABLE app.ballast AS SELECT md5(n::text) FROM generate_series(1, 200000) AS n")
    assert daemon.stop() == 0
    daemon.start()  # a new daemon measures anew
    client = daemon.client("acme")
    client.call("POST", f"/v1/requests/{request}/resolve", {"decision": "custom", "value": "yes"})
    outcome = client.wait(turn)
    assert (outcome.status, outcome.error["code"]) == ("failed", "tenant_storage_full")
    items = client.call("GET", f"/v1/sessions/{session}/history")["data"][0]["turn"]["items"]
    assert [i["kind"] for i in items] == ["user", "tool_call", "tool_result"]
    client.call("POST", f"/v1/sessions/{session}/turns", {"input": "x"}, 507,
                "tenant_storage_full")
    assert daemon.stop() == 0
