"""Judges answers by the API's own description, daemon/api/openapi.json.

What is not described there is a failure: routes, methods, statuses, headers, fields.
Only the part of JSON Schema that the description uses is known here; a keyword that is
not known is a failure too, so that nothing is passed over in silence.
"""

import json
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
PATH = f"{ROOT}/daemon/api/openapi.json"

ANNOTATIONS = {"contentEncoding", "description", "default", "example"}
TRANSPORT_HEADERS = {"content-type", "content-length", "connection", "date"}
ABSENT = object()

# On every answer; a page of another origin may read none of them unless it is listed.
EVERYWHERE = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
TO_PAGES = {"access-control-allow-origin", "access-control-allow-methods",
            "access-control-allow-headers", "access-control-expose-headers",
            "access-control-max-age"}


class Broken(AssertionError):
    """An answer that is not what the description says."""


def strict_json(text):
    """Parses JSON as a program with no mercy would: no duplicate keys, no NaN."""

    def refuse(word):
        raise Broken(f"not a JSON number: {word}")

    def pairs(items):
        keys = [key for key, _ in items]
        if len(set(keys)) != len(keys):
            raise Broken(f"duplicate keys: {keys}")
        return dict(items)

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=refuse)
    except ValueError as error:
        raise Broken(f"not JSON ({error}): {text[:200]!r}") from None


# --- schemas ---------------------------------------------------------------------------

TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
}


def same(a, b):
    return type(a) is type(b) and a == b


def one_of(schemas, value, at, document):
    faults = []
    for schema in schemas:
        fault = mismatch(schema, value, at, document)
        if fault:
            faults.append(fault)
    if len(schemas) - len(faults) == 1:
        return None
    return f"{at}: matches {len(schemas) - len(faults)} of {len(schemas)} ({'; '.join(faults)})"


def properties(schema, value, at, document):
    if not isinstance(value, dict):
        return None
    known = schema.get("properties", {})
    for key, item in value.items():
        if key in known:
            fault = mismatch(known[key], item, f"{at}.{key}", document)
            if fault:
                return fault
        elif schema.get("additionalProperties", True) is False:
            return f"{at}.{key}: not described"
    return None


def items(schema, value, at, document):
    if not isinstance(value, list):
        return None
    faults = (mismatch(schema, v, f"{at}[{i}]", document) for i, v in enumerate(value))
    return next(filter(None, faults), None)


RULES = {
    "type": lambda rule, v: any(TYPES[t](v) for t in ([rule] if isinstance(rule, str) else rule)),
    "const": lambda rule, v: same(rule, v),
    "enum": lambda rule, v: any(same(r, v) for r in rule),
    "pattern": lambda rule, v: not isinstance(v, str) or re.search(rule, v),
    "minLength": lambda rule, v: not isinstance(v, str) or len(v) >= rule,
    "maxLength": lambda rule, v: not isinstance(v, str) or len(v) <= rule,
    "minItems": lambda rule, v: not isinstance(v, list) or len(v) >= rule,
    "maxItems": lambda rule, v: not isinstance(v, list) or len(v) <= rule,
    "minimum": lambda rule, v: not TYPES["number"](v) or v >= rule,
    "maximum": lambda rule, v: not TYPES["number"](v) or v <= rule,
    "required": lambda rule, v: not isinstance(v, dict) or all(key in v for key in rule),
}


def mismatch(schema, value, at, document):
    """What is wrong with value, or None."""
    for key, rule in schema.items():
        fault = None
        if key in ANNOTATIONS or key == "additionalProperties":
            continue
        if key == "$ref":
            fault = mismatch(resolve(rule, document), value, at, document)
        elif key == "oneOf":
            fault = one_of(rule, value, at, document)
        elif key == "properties":
            fault = properties(schema, value, at, document)
        elif key == "items":
            fault = items(rule, value, at, document)
        elif key not in RULES:
            raise Broken(f"keyword {key} is not known here")
        elif not RULES[key](rule, value):
            fault = f"{at}: {key} {json.dumps(rule)[:80]}, found {json.dumps(value)[:120]}"
        if fault:
            return fault
    return None


def resolve(reference, document):
    found = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


# --- answers ---------------------------------------------------------------------------


def codes_of(response):
    """The error codes that a response may have."""
    schema = response["content"]["application/json"]["schema"]
    return schema["properties"]["error"]["properties"]["code"]["enum"]


class Contract:
    def __init__(self, path=PATH):
        with open(path, "rb") as f:
            self.bytes = f.read()
        self.document = strict_json(self.bytes.decode())
        self.patterns = [(re.compile("^" + re.sub(r"\{[^}]*\}", "[^/]+", path) + "$"), path)
                         for path in self.document["paths"]]
        self.produced = set()  # see error_codes()

    def deref(self, node):
        return resolve(node["$ref"], self.document) if set(node) == {"$ref"} else node

    def operations(self):
        """(METHOD, path, operation) of everything that is described."""
        return [(method.upper(), path, operation)
                for path, methods in self.document["paths"].items()
                for method, operation in methods.items()]

    def error_codes(self):
        """What a run of all tests must have produced: every error code that is an operation's
        own there, every code of the answers that operations share somewhere, and the codes of
        turns that failed."""
        components = self.document["components"]
        shared = {code for response in components["responses"].values()
                  for code in codes_of(response)}
        turn = components["schemas"]["TurnError"]["properties"]["code"]["enum"]
        wanted = {("turn", None, code) for code in turn}
        for method, path, operation in self.operations():
            for status, response in operation["responses"].items():
                if status[0] in "45":
                    wanted |= {("shared" if code in shared else f"{method} {path}", int(status),
                                code) for code in codes_of(self.deref(response))}
        return wanted

    def note(self, method, target, status, value):
        """Remembers which error code was produced."""
        if status >= 400:
            code = value["error"]["code"]
            self.produced |= {("shared", status, code),
                              (f"{method} {self.find(target)}", status, code)}
            return
        for turn in (value, value.get("turn"), *(value.get("data") or [])):
            if isinstance(turn, dict) and isinstance(turn.get("error"), dict):
                self.produced.add(("turn", None, turn["error"]["code"]))

    def find(self, target):
        path = target.partition("?")[0]
        return next((p for pattern, p in self.patterns if pattern.match(path)), None)

    def response_of(self, method, target, status):
        path = self.find(target)
        components = self.document["components"]["responses"]
        methods = self.document["paths"].get(path, {})
        operation = None if method != method.upper() else \
            methods.get("get" if method == "HEAD" else method.lower())
        if operation and not (method == "HEAD" and status == 405):
            if str(status) not in operation["responses"]:
                raise Broken(f"{method} {target}: status {status} is not described")
            return self.deref(operation["responses"][str(status)])
        others = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden",
                  429: "TooManyAttempts",
                  **({405: "MethodNotAllowed"} if path else {404: "NoRoute"})}
        if status not in others:
            raise Broken(f"{method} {target}: status {status} for what is not described")
        return components[others[status]]

    def check_headers(self, described, headers, where):
        seen = {}
        for name, value in headers:
            if name.lower() in seen:
                raise Broken(f"{where}: header {name} twice")
            seen[name.lower()] = value
        own = {name.lower() for name in described}
        for name, node in described.items():
            value = seen.pop(name.lower(), ABSENT)
            fault = ("is missing" if value is ABSENT else
                     mismatch(self.deref(node)["schema"], value, name, self.document))
            if fault:
                raise Broken(f"{where}: header {name}: {fault}")
        for name, wanted in EVERYWHERE.items():
            if name not in own and seen.pop(name, None) != wanted:
                raise Broken(f"{where}: header {name} is not {wanted!r}")
        if "access-control-allow-origin" in seen and seen.get("vary") != "Origin":
            raise Broken(f"{where}: may be cached for another origin")
        if "access-control-allow-credentials" in seen:
            raise Broken(f"{where}: allows credentials")
        more = set(seen) - TRANSPORT_HEADERS - TO_PAGES - {"vary"}
        if more:
            raise Broken(f"{where}: headers that are not described: {sorted(more)}")

    def check(self, method, target, status, headers, body):
        """Raises Broken unless the answer is as described; returns the parsed body."""
        where = f"{method} {target}: {status}"
        described = self.response_of(method, target, status)
        self.check_headers(described.get("headers", {}), headers, where)
        kind = dict((k.lower(), v) for k, v in headers).get("content-type")
        if "content" not in described:
            if kind is not None or body:
                raise Broken(f"{where}: a body, or its type, where none is described")
            return None
        if kind not in described["content"]:
            raise Broken(f"{where}: content type {kind} is not described")
        if kind != "application/json" or method == "HEAD":
            return None
        value = strict_json(body.decode("utf-8"))
        fault = mismatch(described["content"][kind]["schema"], value, "$", self.document)
        if fault:
            raise Broken(f"{where}: {fault}")
        named = dict((k.lower(), v) for k, v in headers)["x-request-id"]
        if status >= 400 and value["error"]["requestId"] != named:
            raise Broken(f"{where}: requestId and X-Request-ID differ")
        self.note(method, target, status, value)
        return value

    def check_event(self, kind, event_id, text):
        """One server-sent event; returns its data."""
        value = strict_json(text)
        name = ("ReplayReset" if kind == "replay.reset" else
                "RebuiltEvent" if event_id is None else "Event")
        fault = mismatch(self.document["components"]["schemas"][name], value, "$", self.document)
        if fault:
            raise Broken(f"event {kind}: {fault}")
        if name == "ReplayReset":
            if event_id is not None:
                raise Broken("replay.reset has an id")
        elif value["type"] != kind or str(value["id"]) != (event_id or "None"):
            raise Broken(f"event {event_id} {kind} says {value['id']} {value['type']}")
        return value


CONTRACT = Contract()
