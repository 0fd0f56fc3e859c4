"""Sessions that are changed, forked and deleted, their history, lists of turns, and what a
request that is sent twice comes to."""

import concurrent.futures
import json
import threading
import uuid

import pytest

from test_api import ask
from test_turn_events import whole

SECURITY = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def history(client, session, query=""):
    return client.call("GET", f"/v1/sessions/{session}/history{query}")


def items(client, session, index=-1):
    return history(client, session)["data"][index]["turn"]["items"]


@pytest.fixture
def busy(acme, session):
    """A session whose turn waits for a person."""
    turn, _ = ask(acme, session)
    yield session
    acme.cancel(turn)


# --- change ------------------------------------------------------------------------------


def test_the_title_is_changed(acme, session):
    before = acme.call("GET", f"/v1/sessions/{session}")
    after = acme.call("PATCH", f"/v1/sessions/{session}", {"title": "Größer"})
    assert after == {**before, "title": "Größer", "titleIsManual": True,
                     "updatedAt": after["updatedAt"]}
    assert after["updatedAt"] > before["updatedAt"]
    assert acme.call("GET", f"/v1/sessions/{session}") == after
    none = acme.call("PATCH", f"/v1/sessions/{session}", {"title": ""})
    assert (none["title"], none["titleIsManual"]) == (None, False)


def test_a_session_is_archived_and_taken_back(acme, session):
    title = acme.call("PATCH", f"/v1/sessions/{session}", {"title": "kept"})["title"]
    for archived in (True, False):
        after = acme.call("PATCH", f"/v1/sessions/{session}",
                          {"archived": archived, "title": None})
        assert (after["archived"], after["title"]) == (archived, title)
        for filter_, expected in (("active", not archived), ("archived", archived),
                                  ("all", True)):
            listed = acme.call("GET", f"/v1/sessions?archive={filter_}&limit=5")["data"]
            assert (session in [s["id"] for s in listed]) is expected
        assert acme.run(session, "hello").text == "hello"


@pytest.mark.parametrize("body, status, code", [
    ({}, 400, "empty_patch"), (b"", 400, "empty_patch"), ({"title": None}, 400, "empty_patch"),
    ({"archived": None, "title": None}, 400, "empty_patch"),
    ({"archived": True, "title": "x"}, 422, "non_atomic_patch"),
    ({"instructions": "", "title": "x"}, 422, "non_atomic_patch"),
    pytest.param({"instructions": "x" * 32769}, 400, "invalid_json", id="long instructions"),
    ({"instructions": ["x"]}, 400, "invalid_json"),
    ({"archived": "true"}, 400, "invalid_json"), ({"archived": 1}, 400, "invalid_json"),
    ({"title": 1}, 400, "invalid_json"), ({"title": "é" * 257}, 400, "invalid_json"),
    ({"title": "x", "model": "demo"}, 400, "invalid_json"), ({"id": "x"}, 400, "invalid_json"),
    (b'{"title":"a","title":"b"}', 400, "invalid_json"), ([], 400, "invalid_json")])
def test_changes_that_are_refused(acme, session, body, status, code):
    before = acme.call("GET", f"/v1/sessions/{session}")
    acme.call("PATCH", f"/v1/sessions/{session}", body, status, code)
    assert acme.call("GET", f"/v1/sessions/{session}") == before


# --- delete ------------------------------------------------------------------------------


def test_a_deleted_session_is_gone_with_all_it_had(acme, session):
    turn, request = ask(acme, session)
    acme.call("POST", f"/v1/requests/{request['id']}/resolve", {"decision": "yes"})
    acme.wait(turn)
    fork = acme.call("POST", f"/v1/sessions/{session}/fork", {}, 201)["id"]
    answer = acme.request("DELETE", f"/v1/sessions/{session}")
    assert (answer.status, answer.raw) == (204, b"")
    assert {name: answer.header(name) for name in SECURITY} == SECURITY
    assert answer.header("X-Request-ID")
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/history")):
        acme.call(method, f"/v1/sessions/{session}{path}", status=404, code="session_not_found")
    acme.call("GET", f"/v1/turns/{turn}", status=404, code="turn_not_found")
    acme.call("GET", f"/v1/turns/{turn}/agents", status=404, code="turn_not_found")
    acme.call("POST", f"/v1/requests/{request['id']}/resolve", {"decision": "yes"}, 404,
              "request_not_found")
    assert acme.call("GET", f"/v1/turns?sessionId={session}")["data"] == []
    acme.call("POST", f"/v1/sessions/{session}/turns", {"input": "x"}, 404, "session_not_found")
    assert items(acme, fork)[-1]["text"] == "yes", "a fork lives on"


def test_delete_takes_no_body(acme, session):
    acme.call("DELETE", f"/v1/sessions/{session}", {"x": 1}, 400, "invalid_json")
    acme.call("DELETE", f"/v1/sessions/{session}?x=1", status=400, code="invalid_query")
    acme.call("DELETE", f"/v1/sessions/{session}", {}, 204)


def test_what_a_busy_session_refuses(acme, busy):
    where = f"/v1/sessions/{busy}"
    before = acme.call("GET", where)
    acme.call("PATCH", where, {"title": "x"}, 409, "session_busy")
    acme.call("DELETE", where, status=409, code="session_busy")
    acme.call("POST", f"{where}/fork", {}, 409, "session_busy")
    acme.call("POST", f"{where}/fork", {"throughTurn": 0}, 409, "session_busy")
    assert acme.call("GET", where) == before


def test_delete_and_a_new_turn_at_once(acme):
    """Whoever comes first wins, and no turn is left without its session."""
    seen = set()
    for _ in range(12):
        session = acme.session()
        barrier = threading.Barrier(2)

        def race(call, barrier=barrier):
            barrier.wait()
            return call()

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            delete = pool.submit(race, lambda s=session: acme.request("DELETE",
                                                                      f"/v1/sessions/{s}"))
            start = pool.submit(race, lambda s=session: acme.request(
                "POST", f"/v1/sessions/{s}/turns", {"input": "? x"}))
            deleted, started = delete.result(), start.result()
        outcome = (deleted.status, started.status)
        assert outcome in ((204, 404), (409, 202)), (deleted, started)
        seen.add(outcome)
        if started.status == 202:
            acme.end(started.json["id"])
    assert seen


# --- fork --------------------------------------------------------------------------------


def plain_items(entries):
    return [e["turn"]["items"] for e in entries]


def test_a_fork_has_the_history_and_a_life_of_its_own(acme):
    source = acme.session(title="one", cwd="/workspace/.", effort="low")
    for line in ("first", "$ echo second", "third"):
        acme.run(source, line)
    fork = acme.call("POST", f"/v1/sessions/{source}/fork", status=201)
    original = acme.call("GET", f"/v1/sessions/{source}")
    same = ("model", "cwd", "effort", "title", "titleIsManual", "archived")
    assert {k: fork[k] for k in same} == {k: original[k] for k in same}
    assert fork["id"] != source and fork["usage"] == {
        "input": 0, "output": 0, "cached": 0, "reasoning": 0, "cost": None}
    old, new = history(acme, source)["data"], history(acme, fork["id"])["data"]
    assert plain_items(new) == plain_items(old) and len(new) == 3
    assert not {e["turn"]["id"] for e in new} & {e["turn"]["id"] for e in old}
    assert all(e["turn"]["sessionId"] == fork["id"] for e in new)
    copy = new[1]["turn"]["id"]
    assert copy[14] == "7" and acme.call("GET", f"/v1/turns/{copy}")["input"] == "$ echo second"
    assert acme.wait(copy).text == "second\n"
    acme.run(fork["id"], "fourth")
    assert history(acme, source)["total"] == 3 and history(acme, fork["id"])["total"] == 4
    acme.call("DELETE", f"/v1/sessions/{source}", status=204)
    assert history(acme, fork["id"])["total"] == 4


def test_a_fork_through_a_turn(acme):
    source = acme.session()
    lines = ["zero", "one", "two"]
    for line in lines:
        acme.run(source, line)
    for through in range(3):
        fork = acme.call("POST", f"/v1/sessions/{source}/fork", {"throughTurn": through}, 201)
        found = [e["turn"]["items"][0]["text"] for e in history(acme, fork["id"])["data"]]
        assert found == lines[:through + 1]
    where = f"/v1/sessions/{source}/fork"
    acme.call("POST", where, {"throughTurn": 3}, 422, "invalid_fork_point")
    acme.call("POST", where, {"throughTurn": 2147483647}, 422, "invalid_fork_point")
    acme.call("POST", f"/v1/sessions/{acme.session()}/fork", {"throughTurn": 0}, 422,
              "invalid_fork_point")


def test_a_fork_of_nothing_with_other_words(acme, session):
    where = f"/v1/sessions/{session}/fork"
    fork = acme.call("POST", where, {"title": "other", "cwd": "x/../y"}, 201)
    assert (fork["title"], fork["cwd"], fork["titleIsManual"]) == ("other", "/workspace/y", True)
    assert history(acme, fork["id"])["data"] == []
    for body in ({"throughTurn": 0, "title": "x"}, {"throughTurn": 0, "cwd": "x"}):
        acme.call("POST", where, body, 422, "unsupported_fork_shape")
    for body in ({"throughTurn": -1}, {"throughTurn": 2147483648}, {"throughTurn": "0"},
                 {"throughTurn": 0.5}, {"title": "x" * 513}, {"model": "demo"}):
        acme.call("POST", where, body, 400, "invalid_json")
    acme.call("POST", where, {"cwd": ".."}, 403, "workspace_not_allowed")


def test_the_longest_cwd_and_one_byte_more(acme):
    path = ("/workspace" + "/" + "/".join(["d" * 15] * 300))[:4096]
    assert len(path) == 4096 and path[-1] == "d"
    assert acme.call("POST", "/v1/sessions", {"cwd": path}, 201)["cwd"] == path
    acme.call("POST", "/v1/sessions", {"cwd": path + "d"}, 403, "workspace_not_allowed")
    where = f"/v1/sessions/{acme.session()}/fork"
    assert acme.call("POST", where, {"cwd": path}, 201)["cwd"] == path
    acme.call("POST", where, {"cwd": path + "d"}, 403, "workspace_not_allowed")


# --- history -----------------------------------------------------------------------------


def test_history_says_what_was_said_and_done(acme, session):
    outcome = acme.run(session, "$ printf 'a\\xff'; exit 3")
    page = history(acme, session)
    assert page["session"] == acme.call("GET", f"/v1/sessions/{session}")
    rest = {k: page[k] for k in page if k not in ("session", "data")}
    assert rest == {"generationStart": 0, "total": 1, "hasOlder": False, "hasNewer": False,
                    "nextCursor": None}
    entry = page["data"][0]
    turn = entry["turn"]
    assert entry["index"] == 0 and turn["id"] == outcome.turn["id"]
    assert (turn["status"], turn["displayItems"], turn["projectionTruncated"]) == \
        ("completed", [], False)
    user, call, result, answer = turn["items"]
    assert [i["seq"] for i in turn["items"]] == [0, 1, 2, 3]
    assert user["text"] == outcome.turn["input"]
    assert json.loads(call["arguments"]) == {"command": "printf 'a\\xff'; exit 3"}
    assert (call["state"], call["name"]) == ("done", "shell")
    assert result["callId"] == call["callId"] and result["totalBytes"] == 2
    assert (result["lossy"], result["truncated"]) == (True, False)
    assert result["output"].startswith("a\ufffd") and "[exit code 3]" in result["output"]
    details = {"reason": "exited", "exitCode": 3, "signal": None, "survivors": 0}
    assert result["details"] == details == outcome.tool["details"]
    assert answer["text"] == result["output"]


@pytest.mark.parametrize("line, details", [
    ("$ kill -9 $$", {"reason": "exited", "exitCode": None, "signal": 9, "survivors": 0}),
    ("$ sleep 60 & exit 0", {"reason": "exited", "exitCode": 0, "signal": None, "survivors": 1}),
    ('@shell {"command":"sleep 5","timeoutMs":100}',
     {"reason": "timeout", "exitCode": None, "signal": None, "survivors": 0}),
    ('@read_file {"path":"none"}', {"reason": "not_found"}),
    ('@list_files {"path":"/workspace"}', {"reason": "done"}),
    ("@nothing {}", {"reason": "unknown_tool"})])
def test_what_a_call_came_to_is_kept(acme, session, line, details):
    outcome = acme.watch(session, line)
    shown = outcome.tool["details"]
    assert {k: shown[k] for k in details if k != "signal" or details[k]} == \
        {k: v for k, v in details.items() if k != "signal" or v}
    assert shown == outcome.details == items(acme, session)[2]["details"]


def test_an_answered_question_in_the_history(acme, session):
    turn, request = ask(acme, session)
    live = history(acme, session)["data"][0]["turn"]
    assert (live["status"], live["id"]) == ("waiting_for_input", turn)
    assert [i["kind"] for i in live["items"]] == ["user", "tool_call"]
    assert live["items"][1]["state"] == "started" and live["displayItems"] == []
    acme.call("POST", f"/v1/requests/{request['id']}/resolve", {"decision": "no"})
    acme.wait(turn)
    result = items(acme, session)[2]
    assert (result["output"], result["details"]) == ("no", None)


def test_a_call_that_never_ended_is_for_display(acme, session):
    turn, _ = ask(acme, session)
    acme.end(turn)
    ended = history(acme, session)["data"][0]["turn"]
    assert ended["status"] == "cancelled"
    assert [i["kind"] for i in ended["items"]] == ["user"]
    assert [(i["kind"], i["state"]) for i in ended["displayItems"]] == [("tool_call", "started")]


def test_history_comes_in_pages(acme, session):
    for i in range(7):
        acme.run(session, f"line {i}")
    turn, _ = ask(acme, session)
    seen, query = [], "?limit=3"
    for expected in ([5, 6, 7], [2, 3, 4], [0, 1]):
        page = history(acme, session, query)
        assert [e["index"] for e in page["data"]] == expected
        assert page["total"] == 8
        assert page["hasNewer"] is (expected[-1] != 7)
        assert page["hasOlder"] is (expected[0] != 0)
        assert page["nextCursor"] == (expected[0] or None)
        seen = [e["turn"]["items"][0]["text"] for e in page["data"]] + seen
        query = f"?limit=3&before={page['nextCursor']}"
    assert seen == [f"line {i}" for i in range(7)] + ["? Deploy now? | yes | no"]
    same = history(acme, session, "?cursor=5&limit=3")
    assert [e["index"] for e in same["data"]] == [2, 3, 4], "an index stays what it was"
    none = history(acme, session, "?cursor=0")
    assert (none["data"], none["total"], none["hasOlder"], none["hasNewer"]) == \
        ([], 8, False, True)
    beyond = history(acme, session, "?cursor=9223372036854775807&limit=1")
    assert [e["index"] for e in beyond["data"]] == [7] and not beyond["hasNewer"]
    acme.end(turn)


def test_a_page_of_the_history_has_a_bound_of_bytes(acme, session):
    """8 MiB of text, to which 64 turns come whose words are 64 KiB each, said twice; with a byte
    less there is room for one more."""
    for _ in range(66):
        acme.run(session, "x" * 65536)
    page = history(acme, session, "?limit=100")
    assert [e["index"] for e in page["data"]] == list(range(2, 66))
    assert page["hasOlder"] and page["nextCursor"] == 2
    rest = history(acme, session, "?limit=100&before=2")
    assert [e["index"] for e in rest["data"]] == [0, 1] and not rest["hasOlder"]
    acme.run(session, "x" * 65535)
    page = history(acme, session, "?limit=100")
    assert [e["index"] for e in page["data"]] == list(range(2, 67))


@pytest.mark.parametrize("query, code", [
    ("cursor=x", "invalid_cursor"), ("before=-1", "invalid_cursor"), ("cursor=", "invalid_cursor"),
    ("cursor=+1", "invalid_cursor"), ("before=1.0", "invalid_cursor"),
    ("cursor=9223372036854775808", "invalid_turn_cursor"),
    ("before=99999999999999999999999", "invalid_turn_cursor"),
    ("cursor=1&before=1", "invalid_query"), ("x=1", "invalid_query"), ("limit=0", "invalid_limit"),
    ("limit=101", "invalid_limit")])
def test_queries_of_the_history(acme, session, query, code):
    acme.call("GET", f"/v1/sessions/{session}/history?{query}", status=400, code=code)


def test_each_text_is_bounded_and_marked(acme, session):
    acme.run(session, "é" * 16383)
    acme.run(session, "é" * 16384)
    exact, over = (e["turn"] for e in history(acme, session)["data"])
    assert exact["items"][0]["text"] == "é" * 16383 and not exact["projectionTruncated"]
    assert [i["textTruncated"] for i in exact["items"]] == [False, False]
    assert over["items"][0]["text"] == "é" * 16383 + "…" and over["projectionTruncated"]
    assert [i["textTruncated"] for i in over["items"]] == [True, True]
    listed = acme.call("GET", f"/v1/turns?sessionId={session}")["data"]
    assert [(t["input"], t["inputTruncated"]) for t in listed] == \
        [("é" * 16383, True), ("é" * 16383, False)]
    whole = acme.call("GET", f"/v1/turns/{over['id']}")
    assert whole["input"] == "é" * 16384 and not whole["inputTruncated"]


def test_a_long_turn_is_bounded_as_a_whole(acme, session):
    acme.run(session, "\n".join(["$ yes | head -c 30000"] * 8))
    turn = history(acme, session)["data"][0]["turn"]
    text = sum(len(i.get("text", i.get("output", i.get("arguments", "")))) for i in turn["items"])
    assert turn["projectionTruncated"] and 65536 <= text <= 65536 + len(turn["items"])
    results = [i for i in turn["items"] if i["kind"] == "tool_result"]
    assert len(results) == 8 and all(i["truncated"] for i in results)
    assert all(i["totalBytes"] == 30000 for i in results)
    assert results[-1]["output"] == "…"


@pytest.mark.parametrize("key", ["encrypted_content", "ENCRYPTED_function_args",
                                 "encryptedContent", "encryptedfunctionargs", "Pass_Word"])
def test_what_is_encrypted_is_not_shown(acme, session, key):
    """Not in the history, not in the stream of events, not when the turn is told again."""
    hidden = json.dumps({"a": [{key: {"deep": "s3cret"}}], "path": "x"})
    outcome = acme.watch(session, f"@read_file {hidden}")
    again = whole(acme, f"?turnId={outcome.turn['id']}")
    for told in ([(kind, e) for _, kind, e in outcome.events], again):
        assert "s3cret" not in json.dumps(told)
        started = [e["data"] for kind, e in told if kind == "tool.started"]
        assert [(json.loads(s["arguments"]), s["argumentsEncrypted"]) for s in started] == \
            [({"a": [{key: "[redacted]"}], "path": "x"}, True)]
    page = history(acme, session)
    call = page["data"][0]["turn"]["items"][1]
    assert json.loads(call["arguments"]) == {"a": [{key: "[redacted]"}], "path": "x"}
    assert call["argumentsRedacted"]
    steps = acme.call("GET", f"/v1/turns/{page['data'][0]['turn']['id']}/agents")["data"][0]
    assert "s3cret" not in json.dumps([s for s in steps["steps"] if s["title"] != "input"])


def test_arguments_are_shown_byte_for_byte(acme, session):
    arguments = '{ "path" : "x" ,  "limit":1e0, "encrypted_contents": "\\u0041" }'
    outcome = acme.watch(session, f"@read_file {arguments}")
    started = next(e["data"] for _, kind, e in outcome.events if kind == "tool.started")
    assert started["arguments"] == arguments and not started["argumentsEncrypted"]
    call = items(acme, session)[1]
    assert call["arguments"] == arguments and not call["argumentsRedacted"]


# --- lists of turns ----------------------------------------------------------------------


def test_turns_are_listed_newest_first(acme):
    sessions = [acme.session(), acme.session()]
    turns = [acme.run(sessions[i % 2], f"t{i}").turn for i in range(6)]
    seen, query = [], "limit=2"
    while True:
        page = acme.call("GET", f"/v1/turns?sessionId={sessions[0]}&{query}")
        seen += page["data"]
        if not page["nextCursor"]:
            break
        query = f"limit=2&cursor={page['nextCursor']}"
    assert seen == turns[4::-2]
    newest = acme.call("GET", "/v1/turns?limit=6")
    assert newest["data"] == turns[::-1] and newest["nextCursor"]
    assert acme.call("GET", f"/v1/turns?sessionId={uuid.uuid4()}") == \
        {"data": [], "nextCursor": None}


def test_a_live_turn_is_listed(acme, busy):
    listed = acme.call("GET", f"/v1/turns?sessionId={busy}")["data"]
    assert [t["status"] for t in listed] == ["waiting_for_input"]


def test_turns_of_another_tenant_are_not_listed(acme, globex, session):
    turn = acme.run(session, "mine").turn["id"]
    assert turn not in [t["id"] for t in globex.call("GET", "/v1/turns?limit=100")["data"]]
    assert globex.call("GET", f"/v1/turns?sessionId={session}")["data"] == []


@pytest.mark.parametrize("query, code", [
    ("sessionId=x", "invalid_query"), ("sessionId=", "invalid_query"), ("turnId=x", "invalid_query"),
    ("limit=0", "invalid_limit"), ("limit=101", "invalid_limit"), ("cursor=x", "invalid_cursor"),
    ("cursor=1.x", "invalid_cursor"), ("cursor=0." + "0" * 36, "invalid_cursor")])
def test_queries_of_the_turns(acme, query, code):
    acme.call("GET", f"/v1/turns?{query}", status=400, code=code)


# --- agents ------------------------------------------------------------------------------


def test_the_root_agent_and_its_steps(acme, session):
    turn = acme.run(session, "$ true\n$ exit 1\n" + "@read_file {\"path\":\"" + "x" * 300 + "\"}")
    agents = acme.call("GET", f"/v1/turns/{turn.turn['id']}/agents")["data"]
    assert len(agents) == 1
    agent = agents[0]
    assert (agent["path"], agent["status"], agent["model"]) == ("/root", "completed", "demo")
    assert [(s["state"], s["title"]) for s in agent["steps"]] == [
        ("info", "input"), ("completed", "shell"), ("failed", "shell"), ("failed", "read_file"),
        ("info", "answer")]
    assert agent["steps"][1]["detail"] == '{"command":"true"}'
    assert len(agent["steps"][3]["detail"]) == 257 and agent["steps"][3]["detail"][-1] == "…"
    assert not agent["stepsTruncated"]


def test_the_agent_of_a_live_turn(acme, session):
    turn, _ = ask(acme, session)
    agent = acme.call("GET", f"/v1/turns/{turn}/agents")["data"][0]
    assert agent["status"] == "waiting_for_input"
    assert agent["steps"][-1]["state"] == "running"
    acme.end(turn)
    agent = acme.call("GET", f"/v1/turns/{turn}/agents")["data"][0]
    assert (agent["status"], agent["steps"][-1]["state"]) == ("cancelled", "failed")


# --- usage -------------------------------------------------------------------------------


def test_tokens_are_counted_for_the_session(acme, session):
    expected = {"input": 0, "output": 0, "cached": 0, "reasoning": 0}
    for line in ("hello", "$ echo some words\n$ echo more"):
        for _, kind, event in acme.watch(session, line).events:
            if kind == "agent.turn.finished":
                usage = event["data"]["usage"]
                for key in expected:
                    expected[key] += usage[f"{key}Tokens"]
    assert acme.call("GET", f"/v1/sessions/{session}")["usage"] == {**expected, "cost": None}
    assert expected["input"] > 0 and expected["output"] > 0


# --- once, however often it is sent ---------------------------------------------------------


def test_a_session_is_made_once(acme):
    body = {"title": "once", "cwd": "x", "clientRequestId": str(uuid.uuid4())}
    first = acme.call("POST", "/v1/sessions", body, 201)
    assert acme.call("POST", "/v1/sessions", body, 201) == first
    again = acme.call("POST", "/v1/sessions", {**body, "model": None, "effort": None}, 201)
    assert again == first, "null is absent"
    loud = {**body, "clientRequestId": body["clientRequestId"].upper()}
    assert acme.call("POST", "/v1/sessions", loud, 201) == first
    for change in ({"title": "twice"}, {"title": None}, {"cwd": "x/"}, {"model": "demo"},
                   {"effort": "medium"}):
        acme.call("POST", "/v1/sessions", {**body, **change}, 409, "idempotency_conflict")
    changed = acme.call("PATCH", f"/v1/sessions/{first['id']}", {"title": "new"})
    assert acme.call("POST", "/v1/sessions", body, 201) == changed, "the session as it stands"
    acme.call("DELETE", f"/v1/sessions/{first['id']}", status=204)
    assert acme.call("POST", "/v1/sessions", body, 201)["id"] != first["id"]


@pytest.mark.parametrize("value", ["x", "", "01a22899-3df1-7001-ac9c-7a4c9573c21", 1, {}])
def test_malformed_client_request_ids(acme, session, value):
    body = {"clientRequestId": value}
    acme.call("POST", "/v1/sessions", body, 400, "invalid_json")
    acme.call("POST", f"/v1/sessions/{session}/fork", body, 400, "invalid_json")


def test_the_same_creation_at_once_is_one_session(acme):
    body = {"title": "race", "clientRequestId": str(uuid.uuid4())}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: acme.call("POST", "/v1/sessions", body, 201), range(16)))
    assert len({json.dumps(s) for s in made}) == 1


def test_a_fork_is_made_once(acme, session):
    acme.run(session, "hello")
    other, key = acme.session(), str(uuid.uuid4())
    where = f"/v1/sessions/{session}/fork"
    body = {"title": "fork", "clientRequestId": key}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: acme.call("POST", where, body, 201), range(8)))
    assert len({s["id"] for s in made}) == 1 and history(acme, made[0]["id"])["total"] == 1
    acme.call("POST", where, {"clientRequestId": key}, 409, "idempotency_conflict")
    acme.call("POST", f"/v1/sessions/{other}/fork", body, 409, "idempotency_conflict")
    acme.call("POST", "/v1/sessions", body, 409, "idempotency_conflict")
    for path in ("/v1/sessions", where): # the same words, and no id of what was not made
        said = acme.request("POST", path, {"clientRequestId": key}).json["error"]["message"]
        assert said == "this client request id was used before with another input", path
    turn, _ = ask(acme, session)
    assert acme.call("POST", where, body, 201)["id"] == made[0]["id"], "though it is busy now"
    acme.end(turn)


def test_keys_of_two_tenants_are_apart(acme, globex):
    body = {"clientRequestId": str(uuid.uuid4())}
    assert acme.call("POST", "/v1/sessions", body, 201)["id"] != \
        globex.call("POST", "/v1/sessions", body, 201)["id"]


def test_keys_outlive_a_restart(make_daemon):
    daemon = make_daemon(("acme",)).start()
    body = {"clientRequestId": str(uuid.uuid4()), "title": "kept"}
    made = daemon.client("acme").call("POST", "/v1/sessions", body, 201)
    assert daemon.stop() == 0
    daemon.start()
    assert daemon.client("acme").call("POST", "/v1/sessions", body, 201) == made
    assert daemon.stop() == 0


# --- a thousand --------------------------------------------------------------------------


def test_a_thousand_sessions_are_walked_while_others_are_added(make_daemon):
    daemon = make_daemon(("acme",)).start()
    client = daemon.client("acme")
    connection = client.connect()

    def make(connection, title):
        answer = client.request("POST", "/v1/sessions", {"title": title}, connection=connection)
        assert answer.status == 201, answer
        return answer.json["id"]

    old = [make(connection, f"old {i}") for i in range(1000)]
    stop, added = threading.Event(), []

    def add():
        own = client.connect()
        while not stop.is_set():
            added.append(make(own, "new"))
        own.close()

    thread = threading.Thread(target=add)
    thread.start()
    seen, cursor, pages = [], "", 0
    while cursor is not None:
        answer = client.request("GET", f"/v1/sessions?limit=37{cursor}", connection=connection)
        seen += [s["id"] for s in answer.json["data"]]
        cursor = answer.json["nextCursor"]
        cursor = cursor and f"&cursor={cursor}"
        pages += 1
    stop.set()
    thread.join()
    connection.close()
    assert len(added) > 10 and pages >= 1000 // 37
    assert len(seen) == len(set(seen)), "seen twice"
    assert [s for s in seen if s not in set(added)] == old[::-1], "missing, or out of order"
    assert daemon.stop() == 0


# --- room --------------------------------------------------------------------------------


def test_a_full_database_says_so_and_deleting_makes_room(make_daemon):
    daemon = make_daemon(("acme", "globex"), options=["--max-tenant-database-mb=24"]).start()
    acme = daemon.client("acme")
    line = "x" * 1000000
    key = {"clientRequestId": str(uuid.uuid4())}
    kept = acme.call("POST", "/v1/sessions", key, 201)
    sessions = []
    for _ in range(40):
        answer = acme.request("POST", "/v1/sessions")
        if answer.status == 201:
            sessions.append(answer.json["id"])
            # Random text: PostgreSQL compresses what repeats itself.
            noise = "".join(uuid.uuid4().hex for _ in range(25000))
            answer = acme.request("POST", f"/v1/sessions/{sessions[-1]}/turns", {"input": noise})
        if answer.status == 507:
            break
        ended = acme.wait(answer.json["id"])
        if ended.status == "failed":
            assert ended.error["code"] == "tenant_storage_full"
    assert (answer.status, answer.code) == (507, "tenant_storage_full"), answer
    assert len(sessions) > 3 and "--max-tenant-database-mb" in answer.json["error"]["message"]
    acme.call("POST", f"/v1/sessions/{sessions[0]}/turns", {"input": line}, 507,
              "tenant_storage_full")
    acme.call("POST", f"/v1/sessions/{sessions[0]}/fork", {}, 507, "tenant_storage_full")
    assert acme.call("POST", "/v1/sessions", key, 201) == kept, "nothing is inserted"
    assert history(acme, sessions[0])["total"] == 1
    acme.call("PATCH", f"/v1/sessions/{sessions[0]}", {"title": "reading and changing goes on"})
    assert daemon.client("globex").session(), "another tenant has its own bound"
    for session in sessions[:-1]:
        acme.call("DELETE", f"/v1/sessions/{session}", status=204)
    assert acme.run(acme.session(), "room again").text == "room again"
    assert daemon.stop() == 0


def test_sessions_that_are_asked_for_at_once_are_told_apart(cloister):
    """Reads that wait together are answered by one query: each gets its own, in any mixture."""
    client, other = cloister.client("acme"), cloister.client("globex")
    own = [client.session(model="demo", title=f"number {i}") for i in range(6)]
    wanted = [(f"/v1/sessions/{s}", 200, f"number {i}") for i, s in enumerate(own)]
    wanted += [(f"/v1/sessions/{other.session(model='demo')}", 404, "session_not_found"),
               (f"/v1/sessions/{uuid.uuid4()}", 404, "session_not_found"),
               ("/v1/sessions/x", 404, "session_not_found"),
               (f"/v1/sessions/{own[0]}?a=b", 400, "invalid_query")]
    faults = []

    def read_round(first):
        connection = client.connect()
        for i in range(60):
            path, status, word = wanted[(first + i) % len(wanted)]
            answer = client.request("GET", path, connection=connection)
            told = answer.code if status >= 400 else answer.json["title"]
            if (answer.status, told) != (status, word):
                faults.append((path, answer))
        connection.close()

    threads = [threading.Thread(target=read_round, args=(i,)) for i in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[:3]
