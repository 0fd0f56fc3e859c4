"""The service under its unit: it starts, works, is confined, and stops in order."""

import http.client
import os

import pytest

from service import PORT, read, strays

pytestmark = pytest.mark.short


def test_start_means_ready(installed, network):
    installed.stop()
    installed.start()
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
    connection.request("GET", "/readyz")
    response = connection.getresponse()
    assert response.status == 200, response.read()


def test_a_turn_runs_in_a_sandbox(acme):
    session = acme.session(model="demo")
    outcome = acme.run(session, "$ uname -a; cat /proc/version; id -u")
    assert outcome.status == "completed", outcome.error
    assert "gVisor" in outcome.text or "Linux" in outcome.text, outcome.text


def test_no_process_holds_power(service, acme):
    acme.run(acme.session(model="demo"), "$ true")
    pid = service.main_pid()
    status = dict(line.split(":\t", 1) for line in read(f"/proc/{pid}/status").splitlines()
                  if ":\t" in line)
    assert {status[k].strip("0") for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == \
        {""}, status
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert set(status["Groups"].split()) <= {str(os.stat(f"/proc/{pid}").st_gid)}
    assert strays() == [], "processes of the service outside its cgroup"


def test_a_reload_takes_a_tenant_in(service):
    service.declare("acme", "globex", "initech")
    service.reload()
    assert service.client("umbrella").request("GET", "/v1/sessions").status == 401
    service.declare()
    service.reload()
    assert service.client("umbrella").request("GET", "/v1/sessions").status == 200
