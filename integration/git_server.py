"""A git server of the internet: smart HTTP by git's own backend, with a password for /private.

It lives in the namespace that plays the internet, as a process of its own. Files in its
directory say what it does: while `hold` is there, what is asked for is answered later.
"""

import base64
import contextlib
import http.server
import os
import signal
import subprocess
import threading
import time

from world import demo, eventually, output_of

PORT = 3080
USER, PASSWORD = "robot", "s3cr3t-of-the-repository"
BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
BACKEND_HEADERS = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH",
                   "content-encoding": "HTTP_CONTENT_ENCODING", "git-protocol": "GIT_PROTOCOL"}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    directory = None

    def log_message(self, format, *args):
        pass

    def note(self, text):
        with open(f"{self.directory}/seen", "a", encoding="utf-8") as f:
            f.write(f"{text}\n")

    def refuse(self, status, text, **headers):
        body = text.encode()
        self.send_response(status)
        for name, value in {"Content-Type": "text/plain", "Content-Length": str(len(body)),
                            **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path, _, query = self.path.partition("?")
        given = self.headers.get("Authorization", "")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.note(f"{self.command} {path} {given}")
        if path.startswith("/moved/"):
            self.refuse(302, "", Location=f"/{path.removeprefix('/moved/')}?{query}")
            return
        if path.startswith("/private/") and given != f"Basic {BASIC}":
            if given:  # what it must not tell anybody
                self.refuse(403, f"I know you: {given} {base64.b64decode(given[6:]).decode()}")
            else:
                self.refuse(401, "who are you?", WWW_Authenticate='Basic realm="git"')
            return
        while (number := self.held()) and not path.startswith("/quick/"):
            with open(f"{self.directory}/held-{number}", "w", encoding="utf-8"):
                pass
            time.sleep(0.02)
        self.run_backend(path.removeprefix("/private").removeprefix("/quick"), query, body)

    do_POST = do_GET

    def held(self):
        """The number of what holds it, which one that stands still meanwhile does not mix up."""
        with contextlib.suppress(FileNotFoundError):
            with open(f"{self.directory}/hold", encoding="utf-8") as f:
                return f.read()
        return None

    def run_backend(self, path, query, body):
        environment = {"GIT_PROJECT_ROOT": f"{self.directory}/repositories",
                       "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
                       "REQUEST_METHOD": self.command, "PATH": os.environ["PATH"]}
        for name, variable in BACKEND_HEADERS.items():
            if self.headers.get(name):
                environment[variable] = self.headers[name]
        done = subprocess.run(["git", "http-backend"], input=body, env=environment,
                              capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        status = int(fields.pop("Status", "200").split()[0])
        self.send_response(status)
        for name, value in {**fields, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


class GitServer:
    def __init__(self, world):
        self.world = world
        self.directory = world.new_directory()
        os.makedirs(f"{self.directory}/repositories")
        self.holds = 0
        self.base = f"http://{demo.PUBLIC}:{PORT}"
        ready, told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self.serve(told)
        os.close(told)
        world.listeners.append(self.pid)
        assert os.read(ready, 1) == b"!", "no git server"
        os.close(ready)

    def serve(self, told):
        try:
            demo.enter_netns(self.world.internet)
            Handler.directory = self.directory
            server = http.server.ThreadingHTTPServer((demo.PUBLIC, PORT), Handler)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            os.write(told, b"!")
            signal.pause()
        finally:
            os._exit(1)

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.world.listeners.remove(self.pid)

    def git(self, name, *words):
        return output_of("git", "-C", f"{self.directory}/trees/{name}", "-c", "user.name=a",
                         "-c", "user.email=a@b", *words)

    def make(self, name):
        """A repository with branches main and side and a tag; its commits by these names."""
        tree = f"{self.directory}/trees/{name}"
        os.makedirs(tree)
        self.git(name, "init", "-q", "-b", "main")
        commits = {}
        for ref in ("v1", "side", "main"):
            with open(f"{tree}/file", "w", encoding="utf-8") as f:
                f.write(f"this is {ref}\n")
            self.git(name, "add", ".")
            self.git(name, "commit", "-q", "-m", ref)
            self.git(name, *(("tag", ref) if ref == "v1" else ("branch", "-f", ref))
                     if ref != "main" else ("status", "-s"))
            commits[ref] = self.git(name, "rev-parse", "HEAD")
        output_of("git", "clone", "-q", "--bare", tree,
                  f"{self.directory}/repositories/{name}.git")
        return commits

    def url(self, name, kind=""):
        return f"{self.base}{kind}/{name}.git"

    @contextlib.contextmanager
    def holding(self):
        """Whoever asks waits until the end of this, but for what is of the kind /quick."""
        self.holds += 1
        with open(f"{self.directory}/hold.new", "w", encoding="utf-8") as f:
            f.write(str(self.holds))
        os.rename(f"{self.directory}/hold.new", f"{self.directory}/hold")
        try:
            yield
        finally:
            self.release()

    def release(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.directory}/hold")

    def wait_held(self):
        held = f"{self.directory}/held-{self.holds}"
        eventually(lambda: os.path.exists(held), 60, "somebody asks for it")

    def seen(self):
        with contextlib.suppress(FileNotFoundError):
            with open(f"{self.directory}/seen", encoding="utf-8") as f:
                return f.read()
        return ""
