"""What the machine can reach: a namespace that plays the internet, a private network and a
metadata service. The machine itself is the host; it has no other network.

Each address answers HTTP on port 80, also the host's own, so that a refusal seen in a
sandbox is policy and not absence; those outside echo on port 7, too. The gateway is the
machine's name server: whatever is asked, the answer is the public address."""

import os
import subprocess
import sys
import time

HOST, GATEWAY = "198.41.1.2", "198.41.1.1"  # public in kind: no range rule applies
PUBLIC, PRIVATE, METADATA = "198.41.0.4", "10.99.0.1", "169.254.169.254"
LATER = "198.41.0.9"  # of the internet, until a test gives it to the host
WELL_KNOWN = "1.1.1.1"  # what cloisterd doctor tries
OUTSIDE = "outside"

SERVER = """
import http.server, socket, socketserver, struct, sys, threading
class Greeter(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"hello from outside\\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(4096):
            self.request.sendall(data)
class Names(socketserver.BaseRequestHandler):
    def handle(self):
        query, sock = self.request
        end = query.index(b"\\0", 12) + 5
        found = struct.unpack(">H", query[end - 4:end - 2])[0] == 1
        head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, found, 0, 0)
        answer = struct.pack(">HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(sys.argv[1])
        sock.sendto(head + query[12:end] + (answer if found else b""), self.client_address)
if len(sys.argv) > 1:
    for server in (socketserver.ThreadingTCPServer(("0.0.0.0", 7), Echo),
                   socketserver.UDPServer(("0.0.0.0", 53), Names)):
        threading.Thread(target=server.serve_forever, daemon=True).start()
server = http.server.ThreadingHTTPServer(("0.0.0.0", 80), Greeter)
print("ready", flush=True)
server.serve_forever()
"""


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


class Network:
    def __init__(self):
        self.listeners = []
        ip("netns", "add", OUTSIDE)
        ip("-n", OUTSIDE, "link", "set", "lo", "up")
        ip("link", "add", "outer0", "type", "veth", "peer", "name", "eth0", "netns", OUTSIDE)
        ip("address", "add", f"{HOST}/24", "dev", "outer0")
        ip("-n", OUTSIDE, "address", "add", f"{GATEWAY}/24", "dev", "eth0")
        for address in (PUBLIC, PRIVATE, METADATA, LATER, WELL_KNOWN):
            ip("-n", OUTSIDE, "address", "add", f"{address}/32", "dev", "lo")
        ip("link", "set", "outer0", "up")
        ip("-n", OUTSIDE, "link", "set", "eth0", "up")
        ip("route", "add", "default", "via", GATEWAY)
        with open("/etc/resolv.conf", "w", encoding="ascii") as f:
            f.write(f"nameserver {GATEWAY}\n")
        self.listen(["ip", "netns", "exec", OUTSIDE], PUBLIC)
        self.listen([])

    def listen(self, prefix, *arguments):
        server = subprocess.Popen([*prefix, sys.executable, "-c", SERVER, *arguments],
                                  stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.listeners.append(server)
        assert server.stdout.readline() == b"ready\n", "no web server could be started"

    def close(self):
        for server in self.listeners:
            server.kill()
            server.wait()
        ip("link", "del", "outer0")
        ip("netns", "del", OUTSIDE)
        while os.path.exists("/sys/class/net/outer0"):
            time.sleep(0.05)
