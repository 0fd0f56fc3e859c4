"""Browsers: whose pages may use the API, and what every answer tells a browser."""

import http.client

import pytest

from contract import CONTRACT, EVERYWHERE, TO_PAGES

APP = "https://app.example"
LISTED = (APP, "http://localhost:3000")
UNLISTED = ("https://evil.example", "https://app.example.evil.example", "http://app.example",
            "https://app.example:443", "https://APP.example", "https://app.example/", "null", "*",
            "", "file://")
BY_ITSELF = ("content-type", "content-length", "connection", "date")


@pytest.fixture(scope="module")
def browsed(world):
    from daemon import Daemon

    daemon = Daemon(world, ("acme",), [f"--cors-origin={o}" for o in LISTED]).start()
    yield daemon
    assert daemon.stop() == 0
    world.daemons.remove(daemon)


def ask(daemon, method, path, origin=None, token=True, body=None, **headers):
    """(status, headers by lower-case name, body); each header stands once."""
    if origin is not None:
        headers["Origin"] = origin
    if token:
        headers["Authorization"] = f"Bearer {daemon.tenants['acme'].token}"
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    names = [name.lower() for name, _ in response.getheaders()]
    assert len(set(names)) == len(names), names
    text = b"" if response.getheader("Content-Type") == "text/event-stream" else response.read()
    connection.close()
    return response.status, {k.lower(): v for k, v in response.getheaders()}, text


def check_pages(headers, origin):
    assert headers["access-control-allow-origin"] == origin
    assert headers["vary"] == "Origin"
    assert headers["access-control-allow-methods"] == "GET, POST, PATCH, DELETE, OPTIONS"
    assert headers["access-control-allow-headers"] == \
        "Authorization, Content-Type, Last-Event-ID"
    assert headers["access-control-max-age"] == "600"
    assert "access-control-allow-credentials" not in headers


ROUTES = (("GET", "/healthz", True, 200), ("GET", "/readyz", False, 200),
          ("GET", "/v1/sessions", True, 200), ("GET", "/v1/events", True, 200),
          ("GET", "/v1/sessions", False, 401), ("GET", "/nowhere", True, 404),
          ("GET", "/v1/sessions/x", True, 404), ("PUT", "/v1/sessions", True, 405),
          ("GET", "/v1/sessions?limit=0", True, 400), ("GET", "/v1//sessions", True, 400))


@pytest.mark.parametrize("method,path,token,status", ROUTES)
def test_listed_pages_may_read_and_others_not_even_ask(browsed, method, path, token, status):
    for origin in LISTED:
        got, headers, _ = ask(browsed, method, path, origin, token)
        assert got == status
        check_pages(headers, origin)
    for origin in UNLISTED:
        got, headers, body = ask(browsed, method, path, origin, token)
        assert got == 403 and b'"origin_not_allowed"' in body, origin
        assert not TO_PAGES & set(headers)
    got, headers, _ = ask(browsed, method, path, None, token)
    assert got == status and not TO_PAGES & set(headers)
    assert headers["vary"] == "Origin"


def test_unlisted_pages_change_nothing(browsed):
    before = ask(browsed, "GET", "/v1/sessions")[2]
    for origin in UNLISTED:
        got, _, _ = ask(browsed, "POST", "/v1/sessions", origin, body=b"{}",
                        **{"Content-Type": "application/json"})
        assert got == 403
    assert ask(browsed, "GET", "/v1/sessions")[2] == before


def test_preflights(browsed):
    for path in ("/v1/sessions", "/v1/turns/x/cancel", "/v1/events", "/healthz", "/nowhere"):
        more = {"Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization, content-type"}
        for token in (False, True):
            got, headers, body = ask(browsed, "OPTIONS", path, APP, token, **more)
            assert got == 204 and body == b"", path
            check_pages(headers, APP)
        got, headers, _ = ask(browsed, "OPTIONS", path, "https://evil.example", False, **more)
        assert got == 403 and not TO_PAGES & set(headers)
    assert ask(browsed, "OPTIONS", "/v1/sessions", None, True)[0] == 405


def test_without_a_list_no_page_may_ask(cloister):
    for origin in (APP, f"http://127.0.0.1:{cloister.port}", "null"):
        got, headers, body = ask(cloister, "GET", "/healthz", origin, False)
        assert got == 403 and b'"origin_not_allowed"' in body
        assert not TO_PAGES & set(headers) and "vary" not in headers


def test_every_answer_has_the_security_headers(browsed):
    answers = [ask(browsed, method, path, origin, token)
               for method, path, token, _ in ROUTES for origin in (None, APP, "null")]
    answers.append(ask(browsed, "OPTIONS", "/v1/sessions", APP, False))
    answers.append(ask(browsed, "GET", "/openapi.json"))
    answers.append(ask(browsed, "POST", "/v1/sessions", body=b"{}",
                       **{"Content-Type": "text/plain"}))
    answers.append(ask(browsed, "POST", "/v1/sessions", body=iter([b"x" * 1048577])))
    for status, headers, _ in answers:
        for name, value in EVERYWHERE.items():
            assert headers.get(name) == value, (status, name)
        assert headers["cache-control"] in ("no-store", "no-cache"), status
        assert headers["x-request-id"], status


def test_refusals_are_described(browsed):
    connection = http.client.HTTPConnection("127.0.0.1", browsed.port, timeout=30)
    for path in ("/v1/sessions", "/healthz", "/nowhere"):
        connection.request("GET", path, headers={"Origin": "null"})
        response = connection.getresponse()
        raw = response.read()
        CONTRACT.check("GET", path, response.status, response.getheaders(), raw)


@pytest.mark.parametrize("origin", ["*", "app.example", "https://", "https://App.example",
                                    "https://app.example/", "https://a b", "ftp://app.example",
                                    "https://app.example?x", "https://user@app.example", ""])
def test_what_is_no_origin_is_refused(make_daemon, origin):
    code, lines = make_daemon(("acme",)).fail(f"--cors-origin={origin}")
    assert code == 2 and lines[0].startswith("cloisterd: --cors-origin: "), lines
