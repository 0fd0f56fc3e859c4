"""The systemd unit: what is checked in is what nix/service.nix says, and says it safely."""

import os
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def render(settings="{ }"):
    return subprocess.run([f"{ROOT}/nix/render", settings], capture_output=True, text=True,
                          check=False)


def lines(settings, key):
    done = render(settings)
    assert done.returncode == 0, done.stderr
    return [line.partition("=")[2] for line in done.stdout.splitlines()
            if line.partition("=")[0] == key]


def test_the_unit_that_is_checked_in_is_the_rendered_one():
    done = render()
    assert done.returncode == 0, done.stderr
    with open(f"{ROOT}/nix/cloister.service", encoding="utf-8") as f:
        assert f.read() == done.stdout, "run 'make unit' and commit nix/cloister.service"


def test_settings_reach_their_lines():
    settings = """{
      programs = "/opt/c"; stateDirectory = "c/state"; user = "u"; group = "g"; port = 80;
      drainSeconds = 7; options.log-level = "debug"; options.max-running-turns = 3;
      workspaceRoots = [ "/a" "/b" ]; credentials = { db = "/etc/db"; url = "/etc/url"; };
      environmentFiles = [ "/etc/env" ]; path = [ "/p/bin" "/q/bin" ]; memoryMax = "3G";
      prepare = [ "/opt/prepare" "a b" ]; options.host-address = [ "10.0.0.0/8" "192.0.2.1/32" ];
    }"""
    expected = {
        "ExecStart": ["/opt/c/cloisterd serve --tenants /etc/cloister/tenants.json "
                      "--state /var/lib/c/state --rootfs /usr/lib/cloister/rootfs "
                      "--boundary service --host 127.0.0.1 --port 80 --drain-seconds 7 "
                      "--host-address 10.0.0.0/8 --host-address 192.0.2.1/32 "
                      "--log-level debug --max-running-turns 3"],
        "ExecStartPre": ['+/opt/prepare "a b" start'],
        "ExecReload": ['+/opt/prepare "a b" reload', "/opt/c/cloisterd reload --state /var/lib/c/state"],
        "User": ["u"], "Group": ["g"], "StateDirectory": ["c/state"], "TimeoutStopSec": ["67"],
        "ReadWritePaths": ["/a", "/b", "/sys/fs/cgroup"], "MemoryMax": ["3G"],
        "LoadCredential": ["db:/etc/db", "url:/etc/url"], "EnvironmentFile": ["/etc/env"],
        "Environment": ["PATH=/p/bin:/q/bin"],
    }
    assert {key: lines(settings, key) for key in expected} == expected


def test_nothing_in_a_setting_means_anything_to_systemd():
    command = lines(r'{ options.x = "a b\"c\\d$" + "{HOME}%n;'  r"'" r'"; }', "ExecStart")[0]
    assert command.endswith(r'''--x "a b\"c\\d$${HOME}%%n;'"'''), command
    assert lines('{ user = "a%u"; }', "User") == ["a%%u"]


@pytest.mark.parametrize("settings, fault", [
    ("{ prot = 80; }", "unknown settings: prot"),
    ('{ user = "a\\nExecStartPre=/bin/sh"; }', "line break"),
    ('{ options.host = "a\\nb"; }', "line break"),
    ('{ workspaceRoots = [ "/srv /etc" ]; }', "not an absolute path"),
    ('{ workspaceRoots = [ "srv" ]; }', "not an absolute path"),
    ('{ programs = "relative"; }', "not an absolute path"),
    ('{ credentials.a = "/etc/a\\"b"; }', "not an absolute path"),
])
def test_a_setting_that_would_break_the_unit_is_refused(settings, fault):
    done = render(settings)
    assert done.returncode != 0 and fault in done.stderr, done


def test_what_would_break_sandboxes_is_absent():
    text = render().stdout
    for directive in ("ProtectKernelTunables", "ProtectKernelLogs", "ProtectHostname",
                      "ProcSubset", "ProtectControlGroups", "MemoryDenyWriteExecute",
                      "RestrictNamespaces", "PrivateNetwork"):
        assert f"\n{directive}=" not in text
    # A kill by the filter would reach the tenants' programs inside gVisor.
    assert "\nSystemCallErrorNumber=EPERM\n" in text
