"""Answers on connections that a test holds itself, judged like all others."""

from contract import CONTRACT


def first_answer(received, method, target):
    """(status, code) of the first answer among bytes that came back."""
    head, _, rest = received.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = [tuple(line.split(": ", 1)) for line in lines[1:]]
    length = int({name.lower(): value for name, value in headers}["content-length"])
    assert len(rest) >= length, f"the answer is not whole: {received!r}"
    status = int(lines[0].split()[1])
    value = CONTRACT.check(method, target, status, headers, rest[:length])
    return status, value["error"]["code"] if status >= 400 else None


def read_answer(sock, method, target):
    """The same, of the answer that comes next on a connection."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += more_of(sock, received)
    head, _, rest = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(rest) < length:
        more = more_of(sock, received)
        received, rest = received + more, rest + more
    return first_answer(received, method, target)


def more_of(sock, received):
    more = sock.recv(65536)
    assert more, f"the connection ended after {received!r}"
    return more
