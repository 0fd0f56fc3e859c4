"""Images and files that come with a turn: into the store, the sandbox and the prompt."""

import base64
import contextlib
import hashlib
import http.client
import json
import random
import select
import socket
import threading

import pytest

from daemon import Daemon
from postgres_proxy import HOLD_AFTER, Proxy
from provider.models import DIALECTS, declare, entry
from raw import read_answer
from test_database import Sql
from test_durable import kill_all
from world import SANITIZED, eventually

MIB = 1 << 20
MOST = 20 * MIB
NOISE = random.Random(7).randbytes(MOST)
MAGIC = {"jpeg": b"\xff\xd8\xff\xe0", "png": b"\x89PNG\r\n\x1a\n", "gif": b"GIF89a",
         "webp": b"RIFF\0\0\0\0WEBPVP8 ", "bmp": b"BM\0\0"}


def b64(data):
    return base64.b64encode(data).decode()


def file(data=b"x", name="note.txt", mime="text/plain"):
    return {"name": name, "mimeType": mime, "data": b64(data)}


def image(data=MAGIC["png"], mime="image/png"):
    return {"mimeType": mime, "data": b64(data)}


def about(kind, name, mime, data):
    return {"kind": kind, "name": name, "mimeType": mime, "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest()}


def refuse(client, session, code, place, status=422, **fields):
    """Refused, with a message that names the place; nothing was stored."""
    answer = client.call("POST", f"/v1/sessions/{session}/turns", {"input": "x", **fields}, status,
                         code)
    assert answer["error"]["message"].startswith(f"{place}: "), answer
    assert client.call("GET", f"/v1/turns?sessionId={session}")["data"] == []


def directory(turn):
    return f"/workspace/.cloister/{turn}"


# --- the whole way -----------------------------------------------------------------------


def test_20_mib_arrive_byte_for_byte(acme, session):
    small = bytes(range(256))
    picture = MAGIC["png"] + bytes(1000)
    big = NOISE[:MOST - len(small) - len(picture)]
    turn = acme.start(session, "? ready", images=[image(picture)],
                      files=[file(big, "big.bin", "application/octet-stream"),
                             file(small, "Ünïcode \"1\".bin", "application/x-a+b")])
    acme.wait_for(turn, "waiting_for_input", 60)
    wanted = [about("image", "image.png", "image/png", picture),
              about("file", "big.bin", "application/octet-stream", big),
              about("file", "Ünïcode \"1\".bin", "application/x-a+b", small)]
    assert acme.turn(turn)["attachments"] == wanted
    assert acme.end(turn)["attachments"] == wanted
    for page in (acme.call("GET", f"/v1/turns?sessionId={session}")["data"],
                 [e["turn"] for e in
                  acme.call("GET", f"/v1/sessions/{session}/history")["data"]]):
        assert [t["attachments"] for t in page] == [wanted]
    sums = acme.run(acme.session(), f"$ cd {directory(turn)} && sha256sum */*").text
    assert sums == "".join(f"{w['sha256']}  {i + 1}/{w['name']}\n" for i, w in enumerate(wanted))


def test_the_model_is_told_the_paths(acme, session):
    turn = acme.start(session, "look at this", files=[file(b"ab", "a b.txt")])
    outcome = acme.wait(turn)
    assert outcome.text == (f"look at this\n\n[attached, in the sandbox:\n"
                            f"{directory(turn)}/1/a b.txt (text/plain, 2 bytes)]")
    assert outcome.turn["input"] == "look at this"
    assert acme.run(session, "and now?").text == "and now?"


def test_a_command_reads_it(acme, session):
    outcome = acme.wait(acme.start(
        session, "$ cat $(ls -d /workspace/.cloister/* | tail -n 1)/1/note.txt",
        files=[file(b"hello\n")]))
    assert outcome.text == "hello\n"


def test_another_tenant(acme, globex, session):
    turn = acme.start(session, "x", files=[file(b"secret")])
    assert acme.wait(turn).status == "completed"
    globex.call("GET", f"/v1/turns/{turn}", status=404, code="turn_not_found")
    seen = globex.run(globex.session(), f"$ ls {directory(turn)}")
    assert seen.status == "completed" and "No such file" in seen.text


def test_it_cannot_be_written(make_daemon):
    daemon = make_daemon(("acme",)).start()
    client = daemon.client("acme")
    session = client.session()
    client.run(session, "$ touch /workspace/.cloister")
    outcome = client.wait(client.start(session, "$ touch ran", files=[file()]))
    assert (outcome.status, outcome.error["code"]) == ("failed", "attachment_not_written")
    assert "/1/note.txt" in outcome.error["message"]
    assert client.run(session, "$ ls ran; rm /workspace/.cloister").tool["details"]["exitCode"] == 0
    assert client.wait(client.start(session, "x", files=[file()])).status == "completed"
    assert daemon.stop() == 0


# --- bounds --------------------------------------------------------------------------------


@pytest.mark.parametrize("fields,place", [
    ({"images": [image(), image()]}, "images"),
    ({"files": [file()] * 6}, "files"),
    ({"images": [image()], "files": [file()] * 5}, "files"),
    ({"images": [image(MAGIC["gif"])]}, "images[0].data"),
    ({"images": [image(MAGIC["png"][:-1])]}, "images[0].data"),
    ({"images": [image(b"RIFF\0\0\0\0WAVE", "image/webp")]}, "images[0].data"),
    ({"images": [image(b"RIFF\0\0\0\0WEB", "image/webp")]}, "images[0].data"),
    ({"images": [image(b"<svg/>", "image/svg+xml")]}, "images[0].mimeType"),
    ({"images": [image(mime="image/PNG")]}, "images[0].mimeType"),
    ({"images": [{"mimeType": "image/png", "data": ""}]}, "images[0].data"),
    ({"files": [file(b"")]}, "files[0].data"),
    *[({"files": [file(), {**file(), "data": data}]}, "files[1].data")
      for data in ("YQ", "YQ=", "YQ==\n", " YQ==", "YR==", "Y===", "====", "YWJj=", "YQ==YQ==",
                   "YW\u00ff", "YW_j", "YW-j", "YWJjZA==x", "YWJ", "ü===")],
    *[({"files": [file(name=name)]}, "files[0].name")
      for name in ("", ".", "..", "a/b", "/", "..\\a", "a\nb", "\x7f", "\x85", "\x1f",
                   "x" * 256, "é" * 128)],
    *[({"files": [file(mime=mime)]}, "files[0].mimeType")
      for mime in ("", "text", "/", "text/", "/plain", "text/plain/x", "text/plain; charset=utf-8",
                   "text/pläin", "te xt/plain", "t/" + "x" * 254)]])
def test_refused(acme, session, fields, place):
    refuse(acme, session, "invalid_attachment", place, **fields)


@pytest.mark.parametrize("fields,place", [
    ({"images": {}}, "images"), ({"files": "x"}, "files"), ({"files": [1]}, "files[0]"),
    ({"files": [{"name": "a", "mimeType": "a/b"}]}, "files[0].data"),
    ({"images": [{**image(), "name": "a"}]}, "images[0].name"),
    ({"files": [file(), {**file(), "name": None}]}, "files[1].name"),
    ({"files": [{**file(), "data": 1}]}, "files[0].data")])
def test_not_of_the_described_form(acme, session, fields, place):
    refuse(acme, session, "invalid_json", place, 400, **fields)


def test_a_name_with_nul_is_no_json(acme, session):
    acme.call("POST", f"/v1/sessions/{session}/turns", {"input": "x", "files": [file(name="a\0b")]},
              400, "invalid_json")


def test_nothing_said(acme, session):
    acme.call("POST", f"/v1/sessions/{session}/turns", {"input": " \n", "files": [file()]}, 422,
              "empty_input")


@pytest.mark.parametrize("kind", MAGIC)
def test_every_type_of_image(acme, session, kind):
    turn = acme.start(session, "x", images=[image(MAGIC[kind], f"image/{kind}")], files=None)
    name = "image.jpg" if kind == "jpeg" else f"image.{kind}"
    assert acme.turn(turn)["attachments"] == [about("image", name, f"image/{kind}", MAGIC[kind])]
    assert acme.wait(turn).status == "completed"


def test_at_the_bounds(acme, session):
    names = ["é" * 127 + "x", "x", "...", "x" * 255]
    mime = "!#$%&'*+-.^_`|~09azAZ/" + "x" * 233
    turn = acme.start(session, "x", images=[image()],
                      files=[file(b"abcd"[:i + 1], n, mime) for i, n in enumerate(names)])
    assert acme.wait(turn).status == "completed"
    kept = acme.turn(turn)["attachments"]
    assert [a["name"] for a in kept] == ["image.png", *names]
    assert {a["mimeType"] for a in kept[1:]} == {mime} and len(mime) == 255
    listed = acme.run(session, f"$ cd {directory(turn)} && cat 2/* 3/* 4/... 5/*")
    assert listed.text == "a" + "ab" + "abc" + "abcd"


def test_one_byte_too_many(acme, session):
    refuse(acme, session, "attachments_too_large", "files[0].data", files=[file(NOISE + b"x")])
    refuse(acme, session, "attachments_too_large", "files[1].data",
           images=[image()], files=[file(NOISE[8 + 2:]), file(b"abc")])
    turn = acme.start(session, "x", files=[file(NOISE)])
    assert acme.wait(turn).status == "completed"


def test_a_body_of_many_small_values(acme, session):
    path = f"/v1/sessions/{session}/turns"
    most = b'{"input":"x","files":[' + b"1," * 65531
    for n, message in ((0, "files[0]"), (1, "more than 65536 values")):
        body = most + b"1," * n + b"1]}"
        answer = acme.request("POST", path, body)
        assert answer.code == ("invalid_attachment" if n == 0 else "invalid_json"), answer
    deep = b'{"input":' + b'"' + b",:[{" * 100000 + b'"}'
    assert acme.request("POST", path, deep).status == 202, "text is no value"


# --- keys, forks, room -----------------------------------------------------------------------


def test_the_key_covers_them(acme, session):
    key = "01980000-0000-7000-8000-00000000aaaa"
    path = f"/v1/sessions/{session}/turns"
    body = {"input": "x", "clientRequestId": key, "files": [file(b"one")]}
    first = acme.call("POST", path, body, 202)
    acme.wait(first["id"])
    again = acme.call("POST", path, body, 202)
    assert again["id"] == first["id"] and again["attachments"] == first["attachments"]
    for other in ([file(b"two")], [file(b"one", "other")], [file(b"one", mime="a/b")], [],
                  [file(b"one")] * 2):
        acme.call("POST", path, {**body, "files": other}, 409, "idempotency_conflict")


def stored(daemon, tenant):
    """(turn, number, bytes, sha256) of everything that the database has."""
    sql = Sql(daemon)
    rows = sql.ask("cloister_owner", sql.database(tenant), "SELECT turn, number, "
                   "octet_length(data), encode(sha256(data), 'hex') FROM app.attachment "
                   "ORDER BY turn, number")
    return [tuple(row.split("|")) for row in rows.splitlines()]


def test_forked_and_deleted(make_daemon):
    daemon = make_daemon(("acme",)).start()
    client = daemon.client("acme")
    session = client.session()
    client.wait(client.start(session, "x", images=[image()], files=[file(NOISE[:3 * MIB])]))
    wanted = client.call("GET", f"/v1/sessions/{session}/history")["data"][0]["turn"]["attachments"]
    fork = client.call("POST", f"/v1/sessions/{session}/fork", {}, 201)["id"]
    client.call("DELETE", f"/v1/sessions/{session}", status=204)
    kept = client.call("GET", f"/v1/sessions/{fork}/history")["data"][0]["turn"]
    assert kept["attachments"] == wanted and len(wanted) == 2
    assert stored(daemon, "acme") == \
        [(kept["id"], str(i + 1), str(w["size"]), w["sha256"]) for i, w in enumerate(wanted)]
    client.call("DELETE", f"/v1/sessions/{fork}", status=204)
    assert stored(daemon, "acme") == []
    assert daemon.stop() == 0


def test_they_count_as_what_is_stored(make_daemon):
    """Each too much for the room, alone, and as a copy."""
    daemon = make_daemon(("acme",), options=["--max-tenant-database-mb=32"]).start()
    client = daemon.client("acme")
    session = client.session()
    path = f"/v1/sessions/{session}/turns"
    turn = client.start(session, "x", files=[file(NOISE[:17 * MIB])])
    assert client.wait(turn).status == "completed"
    client.call("POST", path, {"input": "x", "files": [file(NOISE[:17 * MIB])]}, 507,
                "tenant_storage_full")
    client.call("POST", f"/v1/sessions/{session}/fork", {}, 507, "tenant_storage_full")
    assert client.run(session, "small").text == "small"
    client.call("DELETE", f"/v1/sessions/{session}", status=204)
    other = client.session()
    assert client.wait(client.start(other, "x", files=[file(NOISE[:17 * MIB])])).status == \
        "completed"
    assert daemon.stop() == 0


def test_they_count_as_what_is_queued(make_daemon):
    daemon = make_daemon(("acme", "globex"), options=[
        "--max-running-turns=1", "--max-running-turns-per-tenant=1",
        f"--max-queued-bytes={24 * MIB}", f"--max-queued-bytes-per-tenant={16 * MIB}"]).start()
    acme, globex = daemon.client("acme"), daemon.client("globex")
    running = acme.start(acme.session(), "$ sleep 600")
    acme.wait_for(running, "running")
    session = acme.session()
    path = f"/v1/sessions/{session}/turns"
    acme.call("POST", path, {"input": "x", "files": [file(NOISE[:16 * MIB])]}, 429,
              "tenant_turn_queue_full")
    turns = [acme.start(session, "x", files=[file(NOISE[:16 * MIB - 1])])]
    acme.call("POST", f"/v1/sessions/{acme.session()}/turns", {"input": "x"}, 429,
              "tenant_turn_queue_full")
    theirs = f"/v1/sessions/{globex.session()}/turns"
    globex.call("POST", theirs, {"input": "x", "files": [file(NOISE[:8 * MIB])]}, 429,
                "turn_queue_full")
    other = globex.call("POST", theirs, {"input": "x", "files": [file(NOISE[:8 * MIB - 1])]}, 202)
    acme.end(running)
    assert acme.wait(turns[0]).status == "completed"
    assert globex.wait(other["id"]).status == "completed"
    assert daemon.stop() == 0


# --- death -------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [1, 2])
def test_killed_before_they_are_written(make_daemon, commit):
    """After the turn was stored, and after it began: the new daemon writes them."""
    daemon = make_daemon(("acme",)).start()
    session = daemon.client("acme").session()
    proxy = Proxy(daemon)
    proxy.stop_at_commit(commit, HOLD_AFTER)
    body = "$ sha256sum /workspace/.cloister/*/1/note.txt"
    thread = threading.Thread(target=post, args=(daemon.client("acme"), session, body),
                              daemon=True)
    thread.start()
    assert proxy.stopped.wait(30)
    kill_all(daemon)
    proxy.close()
    thread.join(10)
    daemon.start()
    client = daemon.client("acme")
    turn, = client.call("GET", f"/v1/turns?sessionId={session}")["data"]
    outcome = client.wait(turn["id"], 90)
    assert outcome.text.split()[0] == hashlib.sha256(NOISE[:MIB]).hexdigest()
    assert daemon.stop() == 0


def post(client, session, line):
    with contextlib.suppress(OSError, http.client.HTTPException):
        client.start(session, line, files=[file(NOISE[:MIB])])


def test_killed_after_they_were_written(make_daemon):
    """What became of them is written again before the turn goes on."""
    daemon = make_daemon(("acme",)).start()
    client = daemon.client("acme")
    session = client.session()
    turn = client.start(session, "? go\n$ cat /workspace/.cloister/*/1/note.txt",
                        files=[file(b"as it was")])
    client.wait_for(turn, "waiting_for_input")
    client.run(client.session(), f"$ echo other >{directory(turn)}/1/note.txt")
    kill_all(daemon)
    daemon.start()
    client = daemon.client("acme")
    request, = client.call("GET", "/v1/requests")["data"]
    client.call("POST", f"/v1/requests/{request['id']}/resolve",
                {"decision": "custom", "value": "yes"})
    assert client.wait(turn).text == "as it was"
    assert daemon.stop() == 0


# --- bodies --------------------------------------------------------------------------------------


def hold(daemon, client, length):
    """A request whose body of that length never comes."""
    s = socket.create_connection(("127.0.0.1", daemon.port), timeout=30)
    s.sendall(f"POST /v1/sessions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {client.token}\r\n"
              f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{{".encode())
    return s


def test_bodies_have_a_bound_together(make_daemon):
    """A tenant has half; the room comes back when a request ends."""
    size = MIB
    daemon = make_daemon(("acme", "globex", "initech"),
                         options=[f"--max-request-bytes={size}"]).start()
    acme, globex, initech = (daemon.client(t) for t in daemon.tenants)
    held = [hold(daemon, acme, size) for _ in range(5)]
    refused, = select.select(held, [], [], 30)[0]
    held.remove(refused)
    assert read_answer(refused, "POST", "/v1/sessions") == (503, "busy")
    refused.close()
    answer = acme.request("POST", "/v1/sessions", {})
    assert (answer.status, answer.code, answer.header("Retry-After")) == (503, "busy", "1")
    assert acme.call("GET", "/v1/sessions")["data"] == [], "without a body"
    held += [hold(daemon, globex, size) for _ in range(4)]

    def taken():
        for early in select.select(held, [], [], 0)[0]:  # before the refused one's room was free
            held.remove(early)
            early.close()
            held.append(hold(daemon, globex, size))
        return initech.request("POST", "/v1/sessions", {}).status == 503

    eventually(taken, 10, "all of it taken")
    chunked = socket.create_connection(("127.0.0.1", daemon.port), timeout=30)
    chunked.sendall(f"POST /v1/sessions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
                    f"{initech.token}\r\nContent-Type: application/json\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n".encode())
    assert read_answer(chunked, "POST", "/v1/sessions") == (503, "busy")
    chunked.close()
    for s in held:
        s.close()
    eventually(lambda: acme.request("POST", "/v1/sessions", {}).status == 201, 30, "room again")
    assert initech.request("POST", "/v1/sessions", {}).status == 201
    assert daemon.stop() == 0


# --- models of providers -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def seeing(world, provider):
    daemon = Daemon(world, ("acme",))
    models = [entry(d, d, provider.url, images=True) for d in DIALECTS]
    models.append(entry("blind", "chat-completions", provider.url))
    daemon.start(models=declare(daemon, *models))
    yield daemon
    assert daemon.stop() == 0, daemon.log()[-4000:]
    world.daemons.remove(daemon)


def parts_of(request, dialect):
    messages = request["input" if dialect == "responses" else "messages"]
    content = next(m for m in messages if m["role"] == "user")["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_provider_is_shown_the_image(seeing, provider, dialect):
    data = b64(MAGIC["webp"] + NOISE[:100_000])
    provider.will("text")
    client = seeing.client("acme")
    turn = client.start(client.session(model=dialect), "what is this?",
                        images=[{"mimeType": "image/webp", "data": data}], files=[file()])
    assert client.wait(turn).status == "completed"
    parts = parts_of(provider.requests[-1].json, dialect)
    text, = [p["text"] for p in parts if "text" in p]
    assert text.startswith("what is this?\n") and f"{directory(turn)}/2/note.txt" in text
    url = f"data:image/webp;base64,{data}"
    shown = {"chat-completions": {"type": "image_url", "image_url": {"url": url}},
             "responses": {"type": "input_image", "image_url": url},
             "messages": {"type": "image", "source": {"type": "base64", "data": data,
                                                      "media_type": "image/webp"}}}
    assert [p for p in parts if "text" not in p] == [shown[dialect]]


def test_a_model_that_sees_no_images_is_told_so(seeing, provider):
    provider.will("text")
    client = seeing.client("acme")
    assert [m["id"] for m in client.call("GET", "/v1/models")["data"] if not m["images"]] == ["blind"]
    turn = client.start(client.session(model="blind"), "what is this?",
                        images=[image(MAGIC["png"])])
    assert client.wait(turn).status == "completed"
    part, = parts_of(provider.requests[-1].json, "chat-completions")
    assert f"{directory(turn)}/1/image.png" in part["text"]
    assert part["text"].endswith(
        "[an image is here that this model cannot see: image/png, 8 bytes]")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_provider_is_shown_a_bitmap(seeing, provider, dialect):
    provider.will("text")
    client = seeing.client("acme")
    turn = client.start(client.session(model=dialect), "x",
                        images=[image(MAGIC["bmp"], "image/bmp")])
    assert client.wait(turn).status == "completed"
    part, = parts_of(provider.requests[-1].json, dialect)
    assert "/1/image.bmp (image/bmp, 4 bytes)" in part["text"]
    assert "base64" not in json.dumps(provider.requests[-1].json)


def test_many_large_bodies_at_once(make_daemon):
    """Each is taken, or told to come later; what the server needs has a bound."""
    daemon = make_daemon(("acme", "globex", "initech")).start()
    body = json.dumps({"input": "x", "files": [file(NOISE)]}).encode()
    seen, threads = [], []

    def send(client, session):
        with contextlib.suppress(OSError):  # refused before it was read
            answer = client.request("POST", f"/v1/sessions/{session}/turns", body)
            seen.append((answer.status, answer.code))

    for client in [daemon.client(t) for t in daemon.tenants] * 5:
        threads.append(threading.Thread(target=send, args=(client, client.session()), daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    codes = list(seen)
    send(client, client.session())  # later
    assert len(seen) > len(codes) and seen[-1][1] in (None, "tenant_turn_queue_full"), seen
    assert set(codes) <= {
        (202, None), (503, "busy"), (408, "request_timeout"),
        (429, "tenant_turn_queue_full"), (429, "turn_queue_full")}
    most = int(daemon.server().status("VmHWM").split()[0]) * 1024
    print(f"{codes}: {most // MIB} MiB")
    assert most < (4000 if SANITIZED else 1200) * MIB
    assert daemon.stop() == 0
