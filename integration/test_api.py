"""The HTTP API: its answers, its refusals, its bounds. Every answer is also held against
the description, see client.py and contract.py."""

import concurrent.futures
import json
import re
import socket
import threading
import uuid

import pytest

from client import Client
from contract import CONTRACT
from daemon import Gate
from raw import first_answer
from world import demo

UUID7 = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
OPEN = {"/healthz", "/readyz", "/openapi.json"}
MAX_BODY = 33554432


def a_path(path, value=None):
    return path.replace("{id}", value or str(uuid.uuid4()))


# --- what needs no token ---------------------------------------------------------------


def test_open_routes(cloister):
    nobody = cloister.client()
    assert nobody.call("GET", "/healthz") == {"ok": True}
    assert nobody.call("GET", "/readyz") == {"ready": True, "boundary": "development"}
    assert nobody.request("GET", "/openapi.json").raw == CONTRACT.bytes


def test_every_other_route_needs_a_token(cloister):
    nobody = cloister.client()
    for method, path, _ in CONTRACT.operations():
        if path == "/metrics":  # no token for it is declared here
            assert nobody.request(method, path).code == "route_not_found"
        elif path not in OPEN:
            answer = nobody.request(method, a_path(path))
            assert (answer.status, answer.code) == (401, "unauthorized"), path
            assert answer.header("WWW-Authenticate") == "Bearer"
    assert nobody.request("GET", "/nowhere").status == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_scheme_word_has_no_case(acme, scheme):
    answer = acme.request("GET", "/v1/models", headers={"Authorization": f"{scheme} {acme.token}"})
    assert answer.status == 200


@pytest.mark.parametrize("value", [
    "", "Bearer", "Bearer ", "Basic {t}", "{t}", "Bearer {t}x", "Bearer x{t}", "Bearer {h}",
    "Bearer {t} {t}", "Bearer {T}", "Bearer,{t}", "Bearer=" + "x" * 64,
    pytest.param("Bearer " + "x" * 5000, id="long")])
def test_other_credentials_are_refused(acme, value):
    token = acme.token
    value = value.format(t=token, h=token[:-1], T=token.upper())
    answer = acme.request("GET", "/v1/models", headers={"Authorization": value})
    assert (answer.status, answer.code) == (401, "unauthorized")
    assert answer.header("WWW-Authenticate") == "Bearer"


def test_a_token_in_the_query_is_none(cloister, acme):
    answer = cloister.client().request("GET", f"/v1/models?access_token={acme.token}")
    assert answer.status == 401


# --- routes and methods ----------------------------------------------------------------


def test_wrong_methods_name_the_right_ones(acme):
    by_path = {}
    for method, path, _ in CONTRACT.operations():
        by_path.setdefault(path, set()).add(method)
    for path, methods in by_path.items():
        allowed = methods | ({"HEAD"} if "GET" in methods and path != "/v1/events" else set())
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get"} - allowed:
            answer = acme.request(method, a_path(path))
            assert (answer.status, answer.code) == (405, "method_not_allowed"), (method, path)
            assert set(answer.header("Allow").split(", ")) == allowed, (method, path)


def test_head_is_get_without_a_body(acme):
    for path in ("/healthz", "/readyz", "/openapi.json", "/v1/models", "/v1/sessions"):
        head, get = acme.request("HEAD", path), acme.request("GET", path)
        assert (head.status, head.raw) == (200, b"")
        assert head.header("Content-Length") == str(len(get.raw))
    assert acme.request("HEAD", "/v1/events").status == 405


@pytest.mark.parametrize("path", [
    "/", "/v1", "/v2/models", "/v1/models/demo", "/v1/sessions/a/b", "/V1/models", "/healthz2",
    "/v1/turns/x/y/z", "/v1/model"])
def test_unknown_paths(acme, path):
    answer = acme.request("GET", path)
    assert (answer.status, answer.code) == (404, "route_not_found")


# --- request ids -----------------------------------------------------------------------


@pytest.mark.parametrize("value", ["a", "A.b_c-9", "x" * 128])
def test_a_request_id_is_echoed(acme, value):
    answer = acme.request("GET", "/v1/turns/none", headers={"X-Request-ID": value})
    assert answer.header("X-Request-ID") == value == answer.json["error"]["requestId"]


@pytest.mark.parametrize("value", ["", "x" * 129, "a b", "ä".encode().decode("latin-1"), "a\"b",
                                   "<x>", "a,b"])
def test_a_malformed_request_id_is_replaced(acme, value):
    answer = acme.request("GET", "/v1/models", headers={"X-Request-ID": value})
    assert answer.status == 200 and UUID7.match(answer.header("X-Request-ID"))


def test_request_ids_are_fresh(acme):
    seen = {acme.request("GET", "/v1/models").header("X-Request-ID") for _ in range(20)}
    assert len(seen) == 20


# --- what invites smuggling ------------------------------------------------------------


def raw_exchange(port, data, seconds=15):
    """The bytes that come back until the server closes, or until it is silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as s:
        s.sendall(data)
        received = b""
        try:
            while chunk := s.recv(65536):
                received += chunk
        except socket.timeout:
            received += b"<still open>"
        except ConnectionResetError:
            received += b"<reset>"
        return received


HEAD = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n" \
       b"Content-Type: application/json\r\n"
NEXT = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

SMUGGLING = {
    "two lengths": b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "two different lengths": b"Content-Length: 2\r\nContent-Length: 44\r\n\r\n{}",
    "a list of lengths": b"Content-Length: 2, 2\r\n\r\n{}",
    "length and chunks": b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunked twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "an unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a list of codings": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a negative length": b"Content-Length: -2\r\n\r\n{}",
    "a signed length": b"Content-Length: +2\r\n\r\n{}",
    "a hexadecimal length": b"Content-Length: 0x2\r\n\r\n{}",
    "a length of letters": b"Content-Length: two\r\n\r\n{}",
    "a huge length": b"Content-Length: 99999999999999999999\r\n\r\n{}",
    "a blank before the colon": b"Content-Length : 2\r\n\r\n{}",
    "a bare CR in a value": b"X-A: a\rContent-Length: 2\r\n\r\n",
    "two hosts": b"Host: other\r\nContent-Length: 2\r\n\r\n{}",
    "two tokens": b"Authorization: Bearer x\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("name", SMUGGLING)
def test_smuggling_is_refused(cloister, acme, name):
    before = len(acme.call("GET", "/v1/sessions?limit=100")["data"])
    data = HEAD % acme.token.encode() + SMUGGLING[name] + NEXT
    received = raw_exchange(cloister.port, data)
    wanted = (413, "request_too_large") if name == "a huge length" else (400, "bad_request")
    assert first_answer(received, "POST", "/v1/sessions") == wanted
    # The end of the connection: what follows on it is not taken for a request.
    assert b'"ok":true' not in received and b"HTTP/1.1 2" not in received, received
    assert b"<still open>" not in received, received
    assert len(acme.call("GET", "/v1/sessions?limit=100")["data"]) == before


@pytest.mark.parametrize("head", [
    b"GET /healthz HTTP/1.1\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: \r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n",
    b"GET /healthz HTTP/2.0\r\nHost: a\r\n\r\n",
    b"GET /healthz\0 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"G\x01T /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"GET http://a/healthz HTTP/1.1\r\nHost: a\r\n\r\n",
])
def test_malformed_heads(cloister, head):
    received = raw_exchange(cloister.port, head)
    assert first_answer(received, "GET", "/healthz") in (
        (400, "bad_request"), (505, "http_version_not_supported")), received[:300]
    assert b'{"ok":true}' not in received


@pytest.mark.parametrize("path", [
    "/v1/../healthz", "/v1/%2e%2e/healthz", "//healthz", "/healthz/", "/v1/sessions%2f", "/%00",
    "/v1/./models", "/v1/%5cmodels", "/healthz%", "/healthz%4", "/%ff", "/%zz", "/healthz#x"])
def test_paths_that_are_not_canonical(acme, path):
    with socket.create_connection(("127.0.0.1", acme.port), timeout=30) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {acme.token}\r\n"
                  "Connection: close\r\n\r\n".encode())
        received = b"".join(iter(lambda: s.recv(65536), b""))
    assert first_answer(received, "GET", path) in (
        (400, "bad_request"), (404, "route_not_found")), received[:200]
    assert b'{"ok":true}' not in received


def test_a_request_that_follows_another_is_answered(cloister, acme):
    """The counterpart: honest pipelining works, so the tests above refuse for a reason."""
    honest = HEAD % acme.token.encode() + b"Content-Length: 2\r\n\r\n{}" + NEXT[:-2] + \
        b"Connection: close\r\n\r\n"
    received = raw_exchange(cloister.port, honest)
    assert received.count(b"HTTP/1.1 2") == 2 and b'"ok":true' in received


# --- bodies ----------------------------------------------------------------------------


@pytest.mark.parametrize("body", [
    b"{", b"[]", b"null", b"1", b'"x"', b"{}{}", b"{'title':1}", b'{"title":NaN}', b"\xff",
    b'{"title":"\\u0000"}', b'{"title":"\\ud800"}', b'{"title":"a","title":"a"}', b'{"title":1}',
    b'{"title":[]}', b'{"Title":"a"}', b'{"title":"a","more":1}', b'{"id":"x"}', b'{"title":"a",}',
    b"[" * 70 + b"]" * 70, b'{"title":"a\xc3("}', b"\xef\xbb\xbf{}"])
def test_bodies_that_are_refused(acme, body):
    acme.call("POST", "/v1/sessions", body, 400, "invalid_json")


@pytest.mark.parametrize("body,place", [
    (b'{"title":"a","colour":"b"}', "colour: "), (b'{"title":1}', "title: "),
    (b'{"title":\n  oops}', "line 2, column 3"), (b'{"a":1,\n"a":2}', "line 2, column 1"),
    (b'{"title":\n"\xff"}', "line 2, column 2"), (b"[" * 70 + b"]" * 70, "column 65"),
    (b"{} {}", "line 1, column 4"), (b"[]", "object")])
def test_a_fault_is_located(acme, body, place):
    answer = acme.request("POST", "/v1/sessions", body)
    assert (answer.status, answer.code) == (400, "invalid_json")
    assert place in answer.json["error"]["message"], answer


@pytest.mark.parametrize("kind", ["text/plain", "application/jsonp", "application/json-seq", "",
                                  "application/x-www-form-urlencoded", "json", None])
def test_other_media_types(acme, kind):
    acme.call("POST", "/v1/sessions", b"{}", 415, "unsupported_media_type",
              {"Content-Type": kind})


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8",
                                  "application/json ;x=y"])
def test_media_types_that_will_do(acme, kind):
    acme.call("POST", "/v1/sessions", b"{}", 201, headers={"Content-Type": kind})


def padded(size):
    return b'{"title":"x"' + b" " * (size - 13) + b"}"


def test_the_largest_body_and_one_byte_more(acme):
    acme.call("POST", "/v1/sessions", padded(MAX_BODY), 201)
    acme.call("POST", "/v1/sessions", padded(MAX_BODY + 1), 413, "request_too_large")


def chunked(data, size=60000):
    pieces = [data[i:i + size] for i in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


def test_a_chunked_body_is_counted_too(cloister, acme):
    head = HEAD % acme.token.encode() + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert raw_exchange(cloister.port, head + chunked(padded(MAX_BODY))).startswith(
        b"HTTP/1.1 201 ")
    too_large = raw_exchange(cloister.port, head + chunked(padded(MAX_BODY + 1)))
    assert too_large.startswith(b"HTTP/1.1 413 ") and b"request_too_large" in too_large


def test_a_body_that_never_ends_is_cut(cloister, acme):
    """Far more than the bound: the server answers and closes, it does not read on."""
    head = HEAD % acme.token.encode() + b"Content-Length: 10000000000\r\n\r\n"
    assert raw_exchange(cloister.port, head).startswith(b"HTTP/1.1 413 ")


# --- sessions --------------------------------------------------------------------------


def test_a_session_has_defaults(acme):
    made = acme.call("POST", "/v1/sessions", status=201)
    assert UUID7.match(made["id"])
    assert (made["model"], made["effort"], made["cwd"]) == ("demo", "medium", "/workspace")
    assert (made["title"], made["titleIsManual"], made["archived"]) == (None, False, False)
    assert made["usage"] == {
        "input": 0, "output": 0, "cached": 0, "reasoning": 0, "cost": None}
    assert acme.call("GET", f"/v1/sessions/{made['id']}") == made
    nulls = {"model": None, "cwd": None, "effort": None, "title": None}
    assert acme.call("POST", "/v1/sessions", nulls, 201)["title"] is None


def test_a_session_takes_what_is_asked_for(acme):
    made = acme.call("POST", "/v1/sessions", {"model": "demo", "cwd": "a/../b/./c", "effort": "max",
                                              "title": "Räuber ✓"}, 201)
    assert (made["cwd"], made["effort"]) == ("/workspace/b/c", "max")
    assert (made["title"], made["titleIsManual"]) == ("Räuber ✓", True)


@pytest.mark.parametrize("cwd,resolved", [
    ("", "/workspace"), (".", "/workspace"), ("/workspace/", "/workspace"),
    ("/workspace/../workspace/x", "/workspace/x"), ("x/..", "/workspace"),
    pytest.param("a" * 4085, "/workspace/" + "a" * 4085, id="longest")])
def test_cwd_inside(acme, cwd, resolved):
    assert acme.call("POST", "/v1/sessions", {"cwd": cwd}, 201)["cwd"] == resolved


@pytest.mark.parametrize("cwd", [
    "/", "/etc", "..", "../workspace2", "/workspace2", "/workspacex/y", "a/../../etc",
    "/workspace/../../etc", "/state", "/../workspace/../etc",
    pytest.param("a" * 4086, id="too long")])
def test_cwd_outside(acme, cwd):
    acme.call("POST", "/v1/sessions", {"cwd": cwd}, 403, "workspace_not_allowed")


def test_values_that_cannot_be_chosen(acme):
    acme.call("POST", "/v1/sessions", {"model": "none"}, 422, "model_not_available")
    acme.call("POST", "/v1/sessions", {"effort": "Max"}, 422, "invalid_effort")
    acme.call("POST", "/v1/sessions", {"effort": ""}, 422, "invalid_effort")


def test_the_longest_title_and_one_byte_more(acme):
    assert len(acme.call("POST", "/v1/sessions", {"title": "é" * 256}, 201)["title"]) == 256
    acme.call("POST", "/v1/sessions", {"title": "é" * 256 + "x"}, 400, "invalid_json")


def test_the_list_comes_in_pages(cloister):
    client = cloister.client("tyrell")
    ids = [client.session(title=str(i)) for i in range(7)]
    seen, cursor = [], None
    for size in (3, 3, 1):
        page = client.call("GET", "/v1/sessions?limit=3" + (f"&cursor={cursor}" if cursor else ""))
        assert len(page["data"]) == size
        seen += [s["id"] for s in page["data"]]
        cursor = page["nextCursor"]
        assert (cursor is None) == (size == 1)
    assert seen == ids[::-1]
    assert [s["id"] for s in client.call("GET", "/v1/sessions?archive=all")["data"]] == ids[::-1]
    assert client.call("GET", "/v1/sessions?archive=archived")["data"] == []
    # One that is used comes to the front.
    client.run(ids[0], "hello")
    assert client.call("GET", "/v1/sessions?limit=1")["data"][0]["id"] == ids[0]


@pytest.mark.parametrize("query,code", [
    ("limit=0", "invalid_limit"), ("limit=101", "invalid_limit"), ("limit=-1", "invalid_limit"),
    ("limit=", "invalid_limit"), ("limit=1x", "invalid_limit"), ("limit=+1", "invalid_limit"),
    ("limit=18446744073709551617", "invalid_limit"), ("cursor=x", "invalid_cursor"),
    ("cursor=1.x", "invalid_cursor"), ("cursor=", "invalid_cursor"),
    ("archive=some", "invalid_archive_filter"), ("archive=", "invalid_archive_filter"),
    ("limits=1", "invalid_query"), ("limit=1&limit=1", "invalid_query"), ("=1", "invalid_query"),
    ("limit=%", "invalid_query"), ("x=%ff", "invalid_query"), ("x=%00", "invalid_query")])
def test_queries_of_the_list(acme, query, code):
    acme.call("GET", f"/v1/sessions?{query}", status=400, code=code)


def test_limits_that_are_taken(acme):
    for limit in (1, 100):
        acme.call("GET", f"/v1/sessions?limit={limit}")


@pytest.mark.parametrize("path", ["/v1/requests", "/v1/events", "/v1/sessions"])
def test_unknown_query_parameters(acme, path):
    acme.call("GET", f"{path}?colour=blue", status=400, code="invalid_query")


# --- turns -----------------------------------------------------------------------------


def test_a_turn_of_words(acme, session):
    outcome = acme.watch(session, "hello\nworld")
    assert outcome.status == "completed" and outcome.text == "hello\nworld"
    assert outcome.output["tools"] == []
    assert UUID7.match(outcome.turn["id"]) and outcome.turn["input"] == "hello\nworld"
    kinds = [kind for _, kind, _ in outcome.events]
    assert kinds == ["turn.queued", "turn.started", "agent.turn.started", "response.text.delta",
                     "agent.turn.finished", "turn.completed"]
    turn = outcome.turn
    assert turn["createdAt"] <= turn["startedAt"] <= turn["finishedAt"]


@pytest.mark.parametrize("line", ["", " ", "\n\t \r\n"])
def test_an_empty_turn(acme, session, line):
    acme.call("POST", f"/v1/sessions/{session}/turns", {"input": line}, 422, "empty_input")


@pytest.mark.parametrize("body", [
    {}, {"input": None}, {"input": 1}, {"input": "x", "more": 1},
    {"input": "x", "clientRequestId": "x"}, {"input": "x", "clientRequestId": "g" * 36},
    {"input": "x", "clientRequestId": str(uuid.uuid4()) + "0"}])
def test_turns_that_are_malformed(acme, session, body):
    acme.call("POST", f"/v1/sessions/{session}/turns", body, 400, "invalid_json")


def test_the_same_request_gives_the_same_turn(acme, session):
    key = str(uuid.uuid4())
    first = acme.call("POST", f"/v1/sessions/{session}/turns",
                      {"input": "once", "clientRequestId": key}, 202)
    assert first["clientRequestId"] == key
    acme.wait(first["id"])
    again = acme.call("POST", f"/v1/sessions/{session}/turns",
                      {"input": "once", "clientRequestId": key}, 202)
    assert again["id"] == first["id"] and again["status"] == "completed"
    again = acme.call("POST", f"/v1/sessions/{session}/turns",
                      {"input": "once", "clientRequestId": key.upper()}, 202)
    assert (again["id"], again["clientRequestId"]) == (first["id"], key)
    acme.call("POST", f"/v1/sessions/{session}/turns",
              {"input": "twice", "clientRequestId": key}, 409, "idempotency_conflict")


def test_the_same_request_at_once_is_one_turn(acme, session):
    body = {"input": "$ sleep 0.3", "clientRequestId": str(uuid.uuid4())}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(
            lambda _: acme.call("POST", f"/v1/sessions/{session}/turns", body, 202), range(8)))
    assert len({answer["id"] for answer in answers}) == 1
    assert acme.wait(answers[0]["id"]).status == "completed"


def test_a_request_id_of_one_tenant_is_nothing_to_another(acme, globex, session):
    key = str(uuid.uuid4())
    acme.wait(acme.start(session, "mine", clientRequestId=key))
    turn = globex.start(globex.session(), "theirs", clientRequestId=key)
    assert globex.wait(turn).text == "theirs"


def test_a_session_does_one_thing_at_a_time(cloister, acme, session):
    gate = Gate(cloister)
    turn = acme.start(session, f"$ {gate.wait}")
    acme.call("POST", f"/v1/sessions/{session}/turns", {"input": "x"}, 409, "session_busy")
    acme.call("GET", f"/v1/turns/{turn}/result", status=409, code="turn_not_terminal")
    gate.open()
    assert acme.wait(turn).status == "completed"
    assert acme.run(session, "x").text == "x"


def test_cancel(acme, session):
    turn = acme.start(session, "$ sleep 30")
    acme.wait_for(turn, "running")
    ended = acme.end(turn)
    assert ended["finishedAt"]
    again = acme.cancel(turn)
    assert again.status == 200 and again.json == ended
    outcome = acme.wait(turn)
    assert outcome.status == "cancelled" and outcome.output is None and outcome.error is None
    assert acme.run(session, "$ echo next").text == "next\n"


def test_cancel_of_what_has_ended_changes_nothing(acme, session):
    outcome = acme.run(session, "done")
    answer = acme.cancel(outcome.turn["id"])
    assert answer.status == 200 and answer.json == outcome.turn


# --- questions to a person ---------------------------------------------------------------


def ask(client, session, line="? Deploy now? | yes | no"):
    """A turn that waits, and its request."""
    with client.events() as events:
        turn = client.start(session, line)
        created = events.until_kind(turn, "request.created")
    assert client.wait_for(turn, "waiting_for_input")
    listed = client.call("GET", f"/v1/requests?turnId={turn}")["data"]
    assert listed == [created[2]["data"]["request"]]
    return turn, listed[0]


def test_a_question_is_asked_and_answered(acme, session):
    turn, request = ask(acme, session)
    assert request["prompt"] == "Deploy now?" and request["options"] == ["yes", "no", "custom"]
    assert (request["turnId"], request["sessionId"]) == (turn, session)
    assert (request["status"], request["decision"], request["value"]) == ("open", None, None)
    assert request in acme.call("GET", "/v1/requests")["data"]
    with acme.events() as events:
        answered = acme.call("POST", f"/v1/requests/{request['id']}/resolve", {"decision": "no"})
        events.until_end(turn)
        kinds = [kind for _, kind, _ in events.of_turn(turn)]
    assert answered == {**request, "status": "answered", "decision": "no"}
    assert kinds[0] == "request.resolved" and kinds[-1] == "turn.completed"
    assert acme.wait(turn).text == "no"
    assert acme.call("GET", f"/v1/requests?turnId={turn}")["data"] == []
    acme.call("POST", f"/v1/requests/{request['id']}/resolve", {"decision": "yes"}, 409,
              "request_not_resolved")


def test_an_answer_in_ones_own_words(acme, session):
    turn, request = ask(acme, session)
    where = f"/v1/requests/{request['id']}/resolve"
    for body in ({"decision": "maybe"}, {"decision": ""}, {"decision": "custom"},
                 {"decision": "custom", "value": None}):
        acme.call("POST", where, body, 422, "invalid_decision")
    for body in ({}, {"decision": None}, {"decision": "yes", "more": 1}, {"decision": 1},
                 {"decision": "custom", "value": "x" * 65537}):
        acme.call("POST", where, body, 400, "invalid_json")
    answered = acme.call("POST", where, {"decision": "custom", "value": "v" * 65536})
    assert answered["value"] == "v" * 65536
    assert acme.wait(turn).text == "v" * 65536
    # Once it is answered, any decision comes too late.
    acme.call("POST", where, {"decision": "maybe"}, 409, "request_not_resolved")


def test_two_who_answer_at_once(acme, session):
    for _ in range(5):
        turn, request = ask(acme, session)
        barrier = threading.Barrier(4)

        def resolve(word, where=f"/v1/requests/{request['id']}/resolve", barrier=barrier):
            barrier.wait()
            return word, acme.request("POST", where, {"decision": word})

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(resolve, ["yes", "no", "yes", "no"]))
        assert sorted(a.status for _, a in answers) == [200, 409, 409, 409]
        assert all(a.code == "request_not_resolved" for _, a in answers if a.status == 409)
        winner = next(word for word, a in answers if a.status == 200)
        assert acme.wait(turn).text == winner


def test_an_answer_after_the_cancel(acme, session):
    turn, request = ask(acme, session)
    acme.end(turn)
    assert acme.call("GET", f"/v1/requests?turnId={turn}")["data"] == []
    acme.call("POST", f"/v1/requests/{request['id']}/resolve", {"decision": "yes"}, 409,
              "request_not_resolved")
    assert acme.wait(turn).status == "cancelled"


def test_a_waiting_turn_keeps_its_session_busy(acme, session):
    turn, _ = ask(acme, session)
    acme.call("POST", f"/v1/sessions/{session}/turns", {"input": "x"}, 409, "session_busy")
    acme.end(turn)


@pytest.mark.parametrize("value", ["x", "", "01A22899-3DF1-7001-AC9C-7A4C9573C21A"])
def test_requests_of_a_malformed_turn(acme, value):
    acme.call("GET", f"/v1/requests?turnId={value}", status=400, code="invalid_query")


def test_requests_of_an_unknown_turn(acme):
    assert acme.call("GET", f"/v1/requests?turnId={uuid.uuid4()}")["data"] == []


# --- two tenants -----------------------------------------------------------------------

BODIES = {"POST /v1/sessions/{id}/turns": {"input": "x"},
          "POST /v1/sessions/{id}/fork": {"title": "x"},
          "PATCH /v1/sessions/{id}": {"title": "x"},
          "POST /v1/requests/{id}/resolve": {"decision": "yes"}}


def plain(client, method, path, body):
    connection = client.connect()
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, client.headers(data, None))
    return demo.masked(connection.getresponse())


def test_another_tenants_ids_are_unknown_ids(acme, globex, session):
    """On every route: same status, same headers, same body but for the request id."""
    turn, request = ask(acme, session)
    theirs = {"sessions": session, "turns": turn, "requests": request["id"]}
    malformed = ["x", "0", "%20", str(uuid.uuid4()).upper(), "00000000-0000-0000-0000-000000000000",
                 session[:-1], session + "0", "..x", "null", "a" * 500]
    routes = [(m, p) for m, p, _ in CONTRACT.operations() if "{id}" in p]
    assert len(routes) == 13
    for method, path in routes:
        body = BODIES.get(f"{method} {path}")
        kind = path.split("/")[2]
        foreign = plain(globex, method, a_path(path, theirs[kind]), body)
        assert foreign[0] == 404, (method, path, foreign)
        for value in [str(uuid.uuid4()), *malformed, *theirs.values()]:
            assert plain(globex, method, a_path(path, value), body) == foreign, (path, value)
        if body:
            broken = {"wrong": 1}
            assert plain(globex, method, a_path(path, theirs[kind]), broken) == \
                plain(globex, method, a_path(path, str(uuid.uuid4())), broken)
    query = "/v1/requests?turnId="
    assert plain(globex, "GET", query + turn, None) == \
        plain(globex, "GET", query + str(uuid.uuid4()), None)
    own = acme.call("GET", f"/v1/turns/{turn}")
    assert own["status"] == "waiting_for_input", "what was refused had an effect"
    acme.end(turn)


def test_lists_and_streams_show_ones_own_alone(acme, globex, session):
    mine = globex.session()
    cursor = acme.call("GET", "/v1/sessions?limit=1")["nextCursor"]
    for query in ("", "?archive=all", f"?cursor={cursor}" if cursor else ""):
        listed = [s["id"] for s in globex.call("GET", f"/v1/sessions{query}")["data"]]
        assert session not in listed
    with globex.events() as events:
        acme.run(session, "$ echo secret")
        outcome = globex.watch(mine, "hello")
        events.until_end(outcome.turn["id"])
        assert {e["sessionId"] for _, _, e in events.seen} == {mine}
        assert "secret" not in json.dumps([e for _, _, e in events.seen])


# --- many at once ----------------------------------------------------------------------


def test_one_connection_serves_many_requests(acme):
    connection = acme.connect()
    for _ in range(50):
        assert acme.request("GET", "/v1/models", connection=connection).status == 200
    connection.close()


def test_slow_heads_do_not_hold_others(cloister, acme):
    slow = [socket.create_connection(("127.0.0.1", cloister.port)) for _ in range(100)]
    for s in slow:
        s.sendall(b"POST /v1/sessions HTTP/1.1\r\nHost: a\r\n")
    assert Client(cloister.port).call("GET", "/healthz") == {"ok": True}
    assert acme.request("GET", "/v1/sessions").status == 200
    for s in slow:
        s.close()
