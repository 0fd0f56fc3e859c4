"""The service under its unit: it starts, works, is confined, and stops in order."""

import http.client
import os
import signal

from network import HOST, METADATA, PRIVATE, PUBLIC
from service import CGROUP, PORT, processes_of_user, read
from world import eventually


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
    everything = [p for pids in service.processes().values() for p in pids]
    outside = [p for p in processes_of_user() if p[0] not in everything]
    assert outside == [], "processes of the service outside its cgroup"


def test_what_a_sandbox_can_reach(acme, network):
    targets = {PUBLIC: "200", HOST: "000", PRIVATE: "000", METADATA: "000"}
    probe = (f"for a in {' '.join(targets)}; do curl -s -m 20 -o /dev/null "
             "-w \"$a %{http_code}\\n\" http://$a/; done")
    host = os.popen(probe).read().split("\n")
    assert {line for line in host if line} == {f"{a} 200" for a in targets}
    text = acme.run(acme.session(model="demo"), f"$ {probe}", seconds=120).text
    for address, status in targets.items():
        assert f"{address} {status}" in text, text


def test_stop_in_the_middle_of_a_turn_lets_it_finish(service, acme):
    turn = acme.start(acme.session(model="demo"), "$ sleep 4; echo done > late; echo finished")
    acme.wait_for(turn, "running")
    service.stop()
    assert service.show("Result", "ActiveState") == {"Result": "success",
                                                     "ActiveState": "inactive"}
    assert processes_of_user() == [] and not os.path.exists(CGROUP)
    service.start()
    assert "finished" in acme.wait(turn).text


def test_a_kill_leaves_nothing_and_the_service_comes_back(service, acme):
    acme.run(acme.session(model="demo"), "$ true")
    before = service.main_pid()
    os.kill(before, signal.SIGKILL)
    eventually(lambda: service.active() and service.main_pid() not in (0, before), 60,
               "the service restarted")
    outcome = acme.run(acme.session(model="demo"), "$ echo back")
    assert "back" in outcome.text
    assert service.show("NRestarts") == "1"
