"""The description itself: whole, closed, without loose ends, its examples as it says."""

import pytest

from contract import CONTRACT, mismatch, resolve

DOCUMENT = CONTRACT.document
METHODS = {"get", "post", "patch", "put", "delete"}
# Parts that no other part refers to: events, and answers of what is not described.
SPOKEN = {"Event", "RebuiltEvent", "ReplayReset", "NoRoute", "MethodNotAllowed"}
STREAM, SELF = "/v1/events", "/openapi.json"


def walk(node, at="#"):
    """Every object of the document, with its place."""
    if isinstance(node, dict):
        yield at, node
        for key, value in node.items():
            if key != "example":
                yield from walk(value, f"{at}/{key}")
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from walk(value, f"{at}/{i}")


def media():
    """(place, media type object) of every body."""
    return [(f"{at}/{kind}", content) for at, node in walk(DOCUMENT)
            for kind, content in (node.get("content") or {}).items() if isinstance(content, dict)]


def test_every_reference_leads_somewhere_and_every_part_is_used():
    used = {node["$ref"] for _, node in walk(DOCUMENT) if "$ref" in node}
    for reference in used:
        assert isinstance(resolve(reference, DOCUMENT), dict), reference
    for kind, parts in DOCUMENT["components"].items():
        if kind != "securitySchemes":
            for name in parts:
                spoken = name in SPOKEN
                assert spoken or f"#/components/{kind}/{name}" in used, f"{kind}/{name} is unused"


def test_objects_are_closed():
    for at, node in walk(DOCUMENT["components"]["schemas"], "schemas"):
        if node.get("type") == "object" and "properties" in node:
            assert node["additionalProperties"] is False, at
            assert set(node["required"]) <= set(node["properties"]), at


def test_operations_are_complete():
    names = [o["operationId"] for _, _, o in CONTRACT.operations()]
    assert len(names) == len(set(names))
    for method, path, operation in CONTRACT.operations():
        where = f"{method} {path}"
        assert method.lower() in METHODS and operation["summary"], where
        assert {"400", "408", "413", "500", "503"} <= set(operation["responses"]), where
        assert ("401" in operation["responses"]) is (operation.get("security") != []), where
        assert "404" in operation["responses"] or "{id}" not in path, where
        parameters = [CONTRACT.deref(p) for p in operation["parameters"]]
        assert [p["name"] for p in parameters if p["in"] == "path"] == \
            (["id"] if "{id}" in path else []), where
        assert all(p["in"] != "path" or p["required"] for p in parameters), where
        if "requestBody" in operation:
            assert "415" in operation["responses"], where


def test_every_success_and_every_request_has_an_example():
    for method, path, operation in CONTRACT.operations():
        bodies = [r for status, r in operation["responses"].items() if status[0] == "2"]
        bodies += [operation["requestBody"]] if "requestBody" in operation else []
        for body in bodies:
            for content in body.get("content", {}).values():
                assert path == SELF or "example" in content, f"{method} {path}"


@pytest.mark.parametrize("at, content", [(at, c) for at, c in media() if "example" in c])
def test_examples_are_as_described(at, content):
    fault = mismatch(content["schema"], content["example"], "$", DOCUMENT)
    assert not fault, f"{at}: {fault}"


def test_the_example_of_the_stream_is_a_stream():
    content = DOCUMENT["paths"][STREAM]["get"]["responses"]["200"]["content"]
    lines = content["text/event-stream"]["example"].split("\n")
    event = dict(line.split(": ", 1) for line in lines if line and not line.startswith(":"))
    CONTRACT.check_event(event["event"], event["id"], event["data"])


def test_every_error_names_its_codes():
    for at, content in media():
        schema = content["schema"]
        if schema.get("$ref", "").endswith("/Error"):
            codes = schema["properties"]["error"]["properties"]["code"]["enum"]
            assert codes and len(codes) == len(set(codes)), at
