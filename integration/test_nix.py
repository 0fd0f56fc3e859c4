"""The Nix files: parsed, and evaluated with what stands in for nixpkgs in integration/nix."""

import glob
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess

import pytest

from nix_eval import ROOT, evaluate, instantiate, lib, machine
from nix_settings import (
    ACME, GLOBEX, HASH, METRICS, MODEL, SERVER, URL, changed_model, cloister, module, second, two)
from world import BUILD

FILES = sorted(glob.glob(f"{ROOT}/*.nix") + glob.glob(f"{ROOT}/nix/*.nix") +
               glob.glob(f"{ROOT}/integration/**/*.nix", recursive=True))


# --- every file ------------------------------------------------------------------------


def test_every_file_parses():
    done = instantiate("--parse", *FILES)
    assert len(FILES) > 10 and done.returncode == 0, done.stderr


# --- the unit of service.nix -----------------------------------------------------------


MATRIX = {
    "boundary": ['"service"', '"development"'],
    "host": ['"127.0.0.1"', '"::1"', '"0.0.0.0"'],
    "workspaceRoots": ['[ "/srv/cloister" ]', '[ "/a" "/b" ]', "[ ]"],
    "prepare": ["[ ]", '[ "/opt/prepare" "/etc/a list" ]'],
    "credentials": ["{ }", '{ db = "/etc/db"; }'],
    "environmentFiles": ["[ ]", '[ "/etc/a" "/etc/b" ]'],
    "path": ["[ ]", '[ "/p/bin" ]'],
    "options": ["{ }", '{ max-running-turns = 3; host-address = [ "10.0.0.0/8" "192.0.2.0/24" ]; }',
                "{ allow-http-repositories = true; }"],
    "memoryMax": ['"80%"', '"3G"'],
    "after": ["[ ]", '[ "postgresql.service" ]'],
    "visible": ["[ ]", '[ "-/run/secrets" "/run/postgresql" ]'],
}


def test_the_unit_for_every_pair_of_settings():
    """What holds units together holds whatever is set."""
    pairs = [dict(zip(names, values, strict=True))
             for names in itertools.combinations(MATRIX, 2)
             for values in itertools.product(*(MATRIX[name] for name in names))]
    sets = [" ".join(f"{name} = {value};" for name, value in pair.items()) for pair in pairs]
    units = evaluate(f"map (import {ROOT}/nix/service.nix) [ " +
                     " ".join(f"{{ {text} }}" for text in sets) + " ]")
    assert len(units) == len(pairs) > 150
    # Each value that is not the default makes another unit.
    assert len({json.dumps(unit) for unit in units}) == len(
        {frozenset((k, v) for k, v in pair.items() if v != MATRIX[k][0]) for pair in pairs})
    for pair, unit in zip(pairs, units, strict=True):
        service = unit["Service"]
        assert service["NoNewPrivileges"] and service["KillMode"] == "mixed", pair
        assert service["ReadWritePaths"][-1] == "/sys/fs/cgroup", pair
        assert service["ExecReload"][-1].endswith("reload --state /var/lib/cloister"), pair
        assert ("ExecStartPre" in service) == (pair.get("prepare", "[ ]") != "[ ]"), pair
        plus = service["ExecReload"][:-1] + service.get("ExecStartPre", [])
        assert all(line.startswith("+/opt/prepare \"/etc/a list\" ") for line in plus), pair
        assert not service["ExecStart"].startswith("+"), pair
        for key in ("After", "Wants"):
            assert unit["Unit"][key][0] == "network-online.target" and len(unit["Unit"][key]) < 3, pair
        assert "/run/systemd/notify" in service["BindReadOnlyPaths"], pair
        # systemd reads these as lists or nothing.
        assert not any(value in ([], None) for value in service.values()), pair


# Those that one comment explains together with the one above them.
TOGETHER = {
    "Wants", "StartLimitBurst", "NotifyAccess", "RestartSec", "Group", "StateDirectoryMode", "CapabilityBoundingSet",
    "AmbientCapabilities", "RemoveIPC", "PrivateIPC", "TasksMax", "LimitNOFILE", "ReadWritePaths",
    "BindReadOnlyPaths", "BindPaths", "DeviceAllow", "DevicePolicy"}


def test_every_directive_of_the_unit_has_its_reason_above_it():
    """In a comment; a title of a section is none."""
    every = " ".join(f"{name} = {values[-1]};" for name, values in MATRIX.items())
    unit = evaluate(f"import {ROOT}/nix/service.nix {{ {every} }}")
    keys = {key for section in unit.values() for key in section}
    assert len(keys) > 60 and {"LoadCredential", "ExecStartPre", "EnvironmentFile", "Environment"} | TOGETHER < keys
    with open(f"{ROOT}/nix/service.nix", encoding="utf-8") as f:
        lines = f.read().splitlines()
    for key in sorted(keys):
        above = [lines[n - 1] for n, line in enumerate(lines)
                 if re.match(rf'    {key} = |  // optional "{key}" ', line)]
        assert len(above) == 1, (key, above)
        assert bool(re.match(r" *# (?!--)", above[0])) == (key not in TOGETHER), f"{key}: what is it for?"
        assert above[0].strip(), f"{key}: stands alone"
    left_out = " ".join(re.findall(r"^    # Left out: .*(?:\n    # .*)*", "\n".join(lines), re.MULTILINE))
    for name in ("ProtectControlGroups", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectHostname", "ProcSubset",
                 "MemoryDenyWriteExecute", "RestrictNamespaces", "PrivateNetwork", "DynamicUser", "SecureBits",
                 "NoExecPaths", "PrivatePIDs", "RestrictFileSystems"):
        assert name in left_out and name not in keys, name


# --- what the module makes of a good configuration -------------------------------------


@pytest.fixture(scope="module")
def good():
    more = second("""
      tenants.globex.workspace = "/data/globex dir";
      tenants.globex.tokenFiles = { old = "/run/secrets/globex"; new = "/etc/globex new"; };
      tenants.globex.tokenHashes.next = "%s";
      tenants.globex.egress = { mode = "allow"; dns = [ "9.9.9.9" ]; allow = [
        { cidr = "198.51.100.0/24"; ports = [ 443 "8000-8100" ]; } { cidr = "203.0.113.7/32"; } ]; };
      tenants.globex.limits = { cpus = 0.29; memoryMiB = 512; processes = 64; };
      tenants.globex.models = [ "local" "a/b:c-1.2_X" ];
      models."a/b:c-1.2_X" = { label = "A"; api = "messages"; baseUrl = "https://api.example/v1"
        ; model = "a-1"; apiKeyFile = "/run/secrets/key"; contextWindow = 200000; maxOutputTokens = 32000; images = true
        ; reasoning.efforts = [ "low" "max" ]; prices = { input = 3; output = 15.5; }; headers.X-Purpose = "agent"; idleSeconds = 600; };
      models.twin = { label = "A"; api = "messages"; baseUrl = "https://api.example/v1"
        ; model = "a-2"; apiKeyFile = "/run/secrets/key"; contextWindow = 2; maxOutputTokens = 2; };
      models.local = { label = "B"; api = "chat-completions"; baseUrl = "http://127.0.0.1:8000/v1"
        ; model = "b"; apiKeyFile = "/etc/key"; contextWindow = 1; maxOutputTokens = 1; };
      tenants.globex.mcp = [ "files" "open" ];
      tenants.globex.approvals = "ask";
      mcp.files = { url = "https://mcp.example/"; tokenFile = "/run/secrets/mcp"; tokenHeader = "X-Key"; timeoutSeconds = 9; };
      mcp.open = { url = "http://10.0.0.7:8000/mcp"; };
      tenants.globex.diskQuota = "20G";
      workspaceRoots = [ "/srv/cloister" "/data" ];
      environmentFiles = [ "/etc/cloister.env" ];
      host = "0.0.0.0";
      allowRemote = true;
      port = 8443;
      logLevel = "debug";
      corsOrigins = [ "https://app.example" "http://[::1]:3000" ];
      hostAddresses = [ "192.0.2.0/24" ];
      trustedProxies = [ "192.0.2.9" ];
      metricsTokenFile = "/run/secrets/metrics";
      allowHttpRepositories = true;
      logFormat = "json";
      limits = { maxRunningTurns = 2; maxRequestBytes = 2097152; drainSeconds = 7; };
      unit = { memoryMax = "3G"; tasksMax = 4096; };
      reverseProxy = { enable = true; serverName = "cloister.example"; };
      """ % HASH)
    wanted = "inherit (m) machine unit service unitSection registry list;"
    return evaluate(f"let one = m: {{ {wanted} }}; much = {machine(more)}; in {{ "
                    f"little = one {machine(module())}; much = one much // {{ inherit (much) models mcp; }}; }}")


def test_a_tenant_needs_an_id_and_a_token(good):
    assert good["little"]["registry"] == {"version": 1, "tenants": [{
        "id": ACME, "name": "acme", "workspaceRoot": "/srv/cloister/acme",
        "credentials": [{"id": credential_id(ACME, "main"), "tokenFile": token_copy(ACME, "main")}],
        "egress": {"mode": "public"}}]}
    project = good["little"]["list"].split("\t")[1]
    assert good["little"]["list"].splitlines() == [
        f"workspace\t{project}\t0\t/srv/cloister/acme",
        f"home\t{project}\t0\t/var/lib/cloister/tenants/{ACME}/state",
        f"secret\t{credential_id(ACME, 'main')}\ttoken of acme\t/run/secrets/acme"]


def credential_id(tenant, name):
    return evaluate(f"""let d = builtins.hashString "sha256" "{tenant}/{name}";
      p = builtins.substring; in
      "${{p 0 8 d}}-${{p 8 4 d}}-8${{p 12 3 d}}-a${{p 15 3 d}}-${{p 18 12 d}}" """)


def token_copy(tenant, name):
    return f"/run/cloister-secrets/{credential_id(tenant, name)}"


def test_all_that_can_be_said_of_a_tenant(good):
    globex = good["much"]["registry"]["tenants"][1]
    assert globex["workspaceRoot"] == "/data/globex dir"
    assert globex["models"] == ["local", "a/b:c-1.2_X"]
    assert globex["limits"] == {"cpus": 0.29, "memoryMiB": 512, "processes": 64}
    assert globex["egress"] == {"mode": "allow", "dns": ["9.9.9.9"], "allow": [
        {"cidr": "198.51.100.0/24", "ports": [443, "8000-8100"]}, {"cidr": "203.0.113.7/32"}]}
    assert sorted(c["tokenFile"] for c in globex["credentials"][:2]) == sorted(
        token_copy(GLOBEX, name) for name in ("old", "new"))
    # A hash is no secret: it is declared as it is, and nothing is copied for it.
    assert globex["credentials"][2:] == [{"id": credential_id(GLOBEX, "next"), "tokenHash": HASH}]
    assert credential_id(GLOBEX, "next") not in good["much"]["list"]
    fields = [line.split("\t") for line in good["much"]["list"].splitlines()]
    assert [f[2:] for f in fields if f[0] == "workspace"] == [
        ["0", "/srv/cloister/acme"], [str(20 * 1024 * 1024), "/data/globex dir"]]
    # One number for both, so that they share a bound on one file system.
    bounds = [f[1:3] for f in fields if f[0] in ("workspace", "home")]
    assert bounds[0::2] == bounds[1::2] and bounds[0] != bounds[2]
    assert [f[3] for f in fields if f[0] == "home"][1] == f"/var/lib/cloister/tenants/{GLOBEX}/state"
    assert ["token of globex", "/etc/globex new"] in [f[2:] for f in fields]


def test_declared_models_and_copies_of_their_keys(good):
    models = good["much"]["models"]
    assert models["version"] == 1
    one, local, twin = models["models"]
    copies = {tuple(line.split("\t")[3::-2]) for line in good["much"]["list"].splitlines()
              if "key of models" in line}
    keys = {file: f"/run/cloister-secrets/{name}" for file, name in copies}
    # One file, one copy, and so one account.
    assert set(keys) == {"/run/secrets/key", "/etc/key"}
    assert one == {
        "id": "a/b:c-1.2_X", "label": "A", "api": "messages", "baseUrl": "https://api.example/v1",
        "model": "a-1", "apiKeyFile": keys["/run/secrets/key"], "contextWindow": 200000,
        "maxOutputTokens": 32000, "images": True,
        "reasoning": {"efforts": ["low", "max"], "budget": False, "summaries": False},
        "prices": {"input": 3, "output": 15.5},
        "headers": {"X-Purpose": "agent"}, "idleSeconds": 600}
    assert twin["apiKeyFile"] == one["apiKeyFile"] != local["apiKeyFile"] == keys["/etc/key"]
    assert not {"images", "reasoning", "prices", "headers", "idleSeconds"} & set(local)
    assert " --models /etc/cloister/models.json" in good["much"]["service"]["ExecStart"]
    assert set(good["much"]["machine"]["etc"]) == {
        "cloister/tenants.json", "cloister/tenants.list", "cloister/models.json", "cloister/mcp.json"}
    assert "--models" not in good["little"]["service"]["ExecStart"]
    assert "cloister/models.json" not in good["little"]["machine"]["etc"]


def test_declared_mcp_servers_and_copies_of_their_tokens(good):
    files, free = good["much"]["mcp"]["servers"]
    name, = [line.split("\t")[1] for line in good["much"]["list"].splitlines()
             if line.endswith("token of MCP servers\t/run/secrets/mcp")]
    assert files == {"id": "files", "url": "https://mcp.example/", "timeoutSeconds": 9,
                     "tokenFile": f"/run/cloister-secrets/{name}", "tokenHeader": "X-Key"}
    assert free == {"id": "open", "url": "http://10.0.0.7:8000/mcp"}
    assert good["much"]["registry"]["tenants"][1]["mcp"] == ["files", "open"]
    assert [t.get("approvals") for t in good["much"]["registry"]["tenants"]] == [None, "ask"]
    assert "mcp" not in good["much"]["registry"]["tenants"][0]
    assert " --mcp /etc/cloister/mcp.json" in good["much"]["service"]["ExecStart"]
    assert "--mcp" not in good["little"]["service"]["ExecStart"]


def test_models_where_something_else_makes_the_registry():
    """Their keys are copied all the same, and nothing is where there are none."""
    text = """{{ services.cloister.enable = true; services.cloister.tenantRegistryFile = "/etc/t.json";
      services.cloister.models.m = {{ label = "M"; api = "messages"; baseUrl = "https://m.example";
        model = "m"; contextWindow = 1; maxOutputTokens = 1; {} }}; }}"""
    keyed, free = (machine(text.format(key)) for key in ('apiKeyFile = "/etc/key";', ""))
    found = evaluate(f"map (m: {{ inherit (m) service unit list; }}) [ {keyed} {free} ]")
    assert re.fullmatch("secret\tmodel-[0-9a-f]{32}\tkey of models\t/etc/key\n", found[0]["list"])
    assert "ExecStartPre" in found[0]["service"] and len(found[0]["unit"]["triggers"]) == 1
    assert "-/run/cloister-secrets" in found[0]["service"]["BindReadOnlyPaths"]
    assert found[1]["list"] is None and "ExecStartPre" not in found[1]["service"]
    settings = cloister("""modelsFile = "/etc/models.json";
        tenants.acme.models = [ "whatever" ];""")
    assert " --models /etc/models.json" in evaluate(f"{machine(settings)}.service.ExecStart")


def test_the_options_reach_the_command_line(good):
    little, much = (good[name]["service"]["ExecStart"] for name in ("little", "much"))
    assert " --host 127.0.0.1 --port 4096 --drain-seconds 25 " in little
    assert "--max-" not in little  # the daemon's own defaults
    for words in ("--host 0.0.0.0 --port 8443 --drain-seconds 7", "--log-level debug",
                  '--cors-origin https://app.example --cors-origin "http://[::1]:3000"',
                  "--host-address 192.0.2.0/24", "--trusted-proxy 192.0.2.9 --trusted-proxy 127.0.0.1",
                  "--max-running-turns 2", "--max-request-bytes 2097152"):
        assert words in much, words
    assert " --log json " in much and " --log journal " in little
    assert re.search(r" --allow-http-repositories( --|$)", much)
    assert "--allow-http-repositories" not in little
    assert " --metrics-token-file /run/cloister-secrets/metrics " in much
    assert "--metrics-token-file" not in little
    assert "secret\tmetrics\ttoken for metrics\t/run/secrets/metrics" in good["much"]["list"].splitlines()
    service = good["much"]["service"]
    assert service["EnvironmentFile"] == ["/etc/cloister.env"]
    assert service["ReadWritePaths"] == ["/srv/cloister", "/data", "/sys/fs/cgroup"]
    assert (service["MemoryMax"], service["TasksMax"], service["TimeoutStopSec"]) == ("3G", 4096, 67)


def test_programs_are_named_by_their_path_in_the_store(good):
    words = good["little"]["service"]["ExecStart"].split()
    options = dict(zip(words[2::2], words[3::2], strict=True))
    for option, end in (("--runner", "/bin/cloister-runner"), ("--guest", "/bin/cloister-guest"),
                        ("--runsc", "/bin/runsc"), ("--slirp4netns", "/bin/slirp4netns"),
                        ("--postgres-bin", "-postgresql-17/bin"), ("--rootfs", "-cloister-rootfs")):
        assert re.fullmatch(rf"/nix/store/[a-z0-9]{{32}}-[^/]*{re.escape(end)}|"
                            rf"/nix/store/[a-z0-9]{{32}}{re.escape(end)}", options[option]), option
    assert re.fullmatch(r"/nix/store/[^/]+/bin/cloisterd", words[0])


def test_the_unit_is_that_of_service_nix(good):
    """Every line of the default unit that names neither program nor registry."""
    default = evaluate(f"(import {ROOT}/nix/service.nix {{ }}).Service")
    service = good["little"]["service"]
    for key, value in default.items():
        if key == "BindReadOnlyPaths":
            assert service[key] == value + ["-/run/cloister-secrets"]
        elif key not in ("ExecStart", "ExecReload"):
            assert service[key] == value, key
    assert set(service) - set(default) <= {"ExecStartPre", "BindReadOnlyPaths"}
    assert good["little"]["unitSection"] == {
        "StartLimitIntervalSec": 60, "StartLimitBurst": 5, "wantedBy": ["multi-user.target"],
        "after": ["network-online.target"], "wants": ["network-online.target"]}


def test_a_step_of_root_comes_before_start_and_reload(good):
    service = good["little"]["service"]
    step = r"\+/nix/store/[^/]+/bin/nsenter --target 1 --mount -- /nix/store/[^/]+/bin/prepare-tenants /etc/cloister/tenants.list cloister cloister /run/cloister-secrets "
    assert re.fullmatch(step + "start", service["ExecStartPre"][0])
    assert len(service["ExecReload"]) == 2 and re.fullmatch(step + "reload", service["ExecReload"][0])
    assert not service["ExecReload"][1].startswith("+")


def test_what_else_is_on_the_machine(good):
    little, much = good["little"]["machine"], good["much"]["machine"]
    assert little["users"]["users"]["cloister"] | {"description": ""} == {
        "description": "", "extraGroups": [], "group": "cloister", "isNormalUser": False,
        "isSystemUser": True}
    assert little["kernelModules"] == ["tun"] and little["warnings"] == []
    assert little["packages"] == ["cloisterd-0.1.0", "upgrade-database"]
    assert much["tmpfiles"] == ["d /srv/cloister 0755 root root -", "d /data 0755 root root -"]
    # Copies, not links into the store.
    assert {f["mode"] for f in much["etc"].values()} == {"0444"}
    assert little["nginx"] == {"enable": False, "virtualHosts": {}}


def test_another_user_group_and_directory_are_followed_everywhere():
    settings = cloister("""user = "boxer";
      group = "boxers";
      stateDirectory = "boxes/one";
      tenants.acme.diskQuota = "1G";
      unit.openFiles = 4096;""")
    made = evaluate(f"let m = {machine(settings)}; in {{ inherit (m) machine service list; }}")
    service, users = made["service"], made["machine"]["users"]
    assert users["users"]["boxer"]["group"] == "boxers" and users["users"]["boxer"]["isSystemUser"]
    assert set(users["users"]) == {"boxer"} and set(users["groups"]) == {"boxers"}
    assert (service["User"], service["Group"], service["StateDirectory"]) == ("boxer", "boxers", "boxes/one")
    assert service["LimitNOFILE"] == 4096
    for line in (service["ExecStart"], service["ExecReload"][-1]):
        assert re.search(" --state /var/lib/boxes/one( |$)", line)
    for line in (*service["ExecStartPre"], service["ExecReload"][0]):
        assert " /etc/cloister/tenants.list boxer boxers /run/cloister-secrets " in line
    homes = [line.split("\t")[2:] for line in made["list"].splitlines() if line.startswith("home\t")]
    assert homes == [["1048576", f"/var/lib/boxes/one/tenants/{ACME}/state"]]
    # Nothing names those that are there without: what is left is the product's name.
    assert "/var/lib/cloister" not in json.dumps(made)


@pytest.mark.parametrize("option, end", [
    ("package", "/bin/cloisterd"), ("runnerPackage", "/bin/cloister-runner"),
    ("guestPackage", "/bin/cloister-guest"), ("runscPackage", "/bin/runsc"),
    ("slirp4netnsPackage", "/bin/slirp4netns"), ("rootfs", "")])
def test_another_program_is_the_one_that_runs(option, end):
    """And no other is another one then."""
    settings = cloister(f'{option} = pkgs.writeText "another-{option}" "";')
    words = evaluate(f"{machine(settings)}.service.ExecStart")
    assert words.count(f"-another-{option}") == words.count("-another-") == 1
    assert re.search(f"/nix/store/[a-z0-9]{{32}}-another-{option}{end}( |$)", words + " ")


def test_nginx_passes_streams_on_as_they_come(good):
    location = good["much"]["machine"]["nginx"]["virtualHosts"]["cloister.example"]["locations"]["/"]
    assert location["proxyPass"] == "http://127.0.0.1:8443"
    for line in ("proxy_buffering off;", "proxy_http_version 1.1;", "client_max_body_size 2097152;",
                 "proxy_set_header X-Forwarded-For $remote_addr;"):
        assert line in location["extraConfig"]


@pytest.mark.parametrize("host, upstream", [
    ("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("::1", "[::1]"),
    ("192.0.2.1", "192.0.2.1")])
def test_nginx_finds_the_daemon_wherever_it_listens(host, upstream):
    settings = cloister(f"""host = "{host}";
      allowRemote = true;
      reverseProxy = {{ enable = true; serverName = "c"; }};""")
    made = evaluate(f"let m = {machine(settings)}; in {{ inherit (m.machine) nginx; inherit (m.service) ExecStart; }}")
    assert made["nginx"]["virtualHosts"]["c"]["locations"]["/"]["proxyPass"] == f"http://{upstream}:4096"
    # It comes from there, too.
    assert f" --trusted-proxy {upstream.strip('[]')}" in made["ExecStart"]


# --- reload or restart -----------------------------------------------------------------


CHANGES = {
    "added": (two(), "reload"),
    "token": (cloister('tenants.acme.tokenFiles = { main = "/run/secrets/acme"; next = "/etc/next"; };'), "reload"),
    "workspace": (cloister('tenants.acme.workspace = "/srv/cloister/other";'), "reload"),
    "limits": (cloister("tenants.acme.limits.cpus = 1;"), "reload"),
    "egress": (cloister('tenants.acme.egress.mode = "none";'), "reload"),
    "quota": (cloister('tenants.acme.diskQuota = "1G";'), "reload"),
    "models": (cloister("tenants.acme.models = [ ];"), "reload"),
    "models of providers": (cloister(MODEL), "restart"),
    "MCP servers": (cloister(SERVER), "restart"),
    "MCP servers of a tenant": (cloister(f"{SERVER};\ntenants.acme.mcp = [ \"s\" ];"), "restart"),
    "renamed": (module(tenants=(("acme2", ACME),)), "reload"),
    "runner": (cloister('runnerPackage = pkgs.writeText "another" "";'), "restart"),
    "daemon": (cloister('package = pkgs.writeText "another" "";'), "restart"),
    "guest": (cloister('guestPackage = pkgs.writeText "another" "";'), "restart"),
    "runsc": (cloister('runscPackage = pkgs.writeText "another" "";'), "restart"),
    "slirp4netns": (cloister('slirp4netnsPackage = pkgs.writeText "another" "";'), "restart"),
    "open files": (cloister("unit.openFiles = 4096;"), "restart"),
    "rootfs": (cloister('rootfs = pkgs.writeText "another" "";'), "restart"),
    "limit": (cloister("limits.maxRunningTurns = 20;"), "restart"),
    "database server": (cloister(URL), "restart"),
    "token for metrics": (cloister(METRICS), "restart"),
    "nothing": (cloister("port = 4096;"), "nothing"),
}


@pytest.mark.parametrize("file", [URL, METRICS])
def test_another_file_that_is_read_at_the_start_alone_restarts(file):
    """The unit names the copy of it, which has the same name: with a reload an old token for
    metrics would still be good."""
    one, other = (evaluate(f"{machine(cloister(text))}.unit.unit")
                  for text in (file, file.replace("/secrets/", "/secrets/new-")))
    assert one != other


@pytest.fixture(scope="module")
def changes():
    texts = [f'"{name}" = {machine(settings)}.unit;' for name, (settings, _) in CHANGES.items()]
    return evaluate(f"{{ before = {machine(module())}.unit; {' '.join(texts)} }}")


@pytest.mark.parametrize("name", CHANGES)
def test_tenants_reload_and_programs_restart(changes, name):
    """As NixOS decides: a unit that differs restarts, with other triggers alone it reloads."""
    before, after = changes["before"], changes[name]
    found = ("restart" if before["unit"] != after["unit"] else
             "reload" if before["triggers"] != after["triggers"] else "nothing")
    assert found == CHANGES[name][1]


def test_no_tenant_is_in_the_unit(changes):
    for name in ("added", "token"):
        for word in ("acme", "globex", ACME, "/run/secrets"):
            assert word not in changes[name]["unit"]


def test_a_database_server_of_the_operator():
    """Its URL is a secret like others; what is for the service's own is not there."""
    tcp, local = (evaluate(f"let m = {machine(settings)}; in {{ inherit (m) service unit unitSection list machine; "
                           "preserved = m.postgresql; }") for settings in (cloister(URL), module(f"""
      services.cloister.{URL};
      services.cloister.database.socketDirectory = "/run/postgresql";
      services.postgresql.enable = true;""")))
    for made in (tcp, local):
        assert re.search(" --database-url-file /run/cloister-secrets/database( |$)", made["service"]["ExecStart"])
        assert "--postgres-bin" not in made["service"]["ExecStart"]
        assert "secret\tdatabase\tURL of the database\t/run/secrets/db" in made["list"].splitlines()
        assert made["machine"]["packages"] == ["cloisterd-0.1.0"]
        assert "/run/secrets" not in json.dumps(made["service"])
        # Nothing that a server on another machine needs is taken away.
        assert {"AF_INET", "AF_INET6"} < set(made["service"]["RestrictAddressFamilies"].split())
        assert made["service"]["IPAddressDeny"] == "link-local multicast"
    only = {key for key, value in local["service"].items() if value != tcp["service"][key]}
    assert only == {"BindReadOnlyPaths"}
    assert set(local["service"]["BindReadOnlyPaths"]) - set(tcp["service"]["BindReadOnlyPaths"]) == {"/run/postgresql"}
    for key in ("after", "wants"):
        assert local["unitSection"][key] == tcp["unitSection"][key] + ["postgresql.service"]
    # A directory that is made anew with the server is another one than the unit sees.
    assert local["preserved"] == {"RuntimeDirectoryPreserve": True} and tcp["preserved"] is None


def test_programs_of_postgresql_are_not_even_looked_for_with_another_server():
    """This nixpkgs need not have the version that would be the service's own."""
    without = machine(cloister(URL)).replace("{ lib =", "{ without = [ \"postgresql_17\" ]; lib =", 1)
    assert "--database-url-file" in evaluate(f"{without}.service.ExecStart")
    managed = machine(module()).replace("{ lib =", "{ without = [ \"postgresql_17\" ]; lib =", 1)
    assert "this nixpkgs has no PostgreSQL 17" in evaluate(f"{managed}.refused")[0]


def test_a_registry_made_elsewhere_is_read_where_it_is():
    settings = """{ services.cloister.enable = true;
      services.cloister.tenantRegistryFile = "/etc/t.json"; }"""
    found = evaluate(f"let m = {machine(settings)}; in {{ inherit (m) unit service machine; }}")
    assert " --tenants /etc/t.json " in found["service"]["ExecStart"]
    assert found["unit"]["triggers"] == [] and found["machine"]["etc"] == {}
    assert "ExecStartPre" not in found["service"] and len(found["service"]["ExecReload"]) == 1
    assert "-/run/cloister-secrets" not in found["service"].get("BindReadOnlyPaths", [])


def test_a_switched_off_module_changes_nothing():
    settings = "{ services.cloister.enable = false; services.cloister.tenants = { }; }"
    found = evaluate(f"{machine(settings)}.machine")
    assert found["etc"] == {} and found["users"]["users"] == {} and found["tmpfiles"] == []


def test_modules_that_are_locked_are_warned_of():
    found = evaluate(f"{machine(module('security.lockKernelModules = true;'))}.machine.warnings")
    assert len(found) == 1 and "boot.kernelModules" in found[0]


# --- what is no configuration at all ---------------------------------------------------


BROKEN = {
    "unknown option": (cloister("prot = 80;"), r"services\.cloister\.prot' does not exist"),
    "unknown option of a tenant": (cloister('tenants.acme.token = "x";'),
                                   r"tenants\.acme\.token' does not exist"),
    "unknown option of the machine": (module("services.nginks.enable = true;"),
                                      r"services\.nginks' does not exist"),
    "unknown limit": (cloister("limits.maxTurns = 1;"), r"limits\.maxTurns' does not exist"),
    "text for a number": (cloister('port = "4096";'), r"option `services\.cloister\.port' is not of type"),
    "number beyond its range": (cloister("limits.maxDbConnections = 3;"),
                                r"limits\.maxDbConnections' is not of type"),
    "port beyond its range": (cloister("port = 65536;"), r"cloister\.port' is not of type"),
    "word for a list": (cloister('workspaceRoots = "/srv";'), r"workspaceRoots' is not of type"),
    "path for a token": (cloister("tenants.acme.tokenFiles.main = ./token;"),
                         r"tokenFiles\.main' is not of type"),
    "path for a URL": (cloister("database.urlFile = ./url;"), r"database\.urlFile' is not of type"),
    "list for a socket": (cloister('database.socketDirectory = [ "/run/postgresql" ];'),
                          r"database\.socketDirectory' is not of type"),
    "unknown option of the database": (cloister('database.url = "postgresql://h";'),
                                       r"database\.url' does not exist"),
    "unknown word": (cloister('tenants.acme.egress.mode = "all";'), r"egress\.mode' is not of type"),
    "quota": (cloister('tenants.acme.diskQuota = "20";'), r"diskQuota' is not of type"),
    "api": (changed_model("messages", "telepathy"), r"models\.m\.api' is not of type"),
    "tokens beyond what the daemon takes": (changed_model("contextWindow = 2", "contextWindow = 100000001"),
                                            r"models\.m\.contextWindow' is not of type"),
    "as many at once": (changed_model("contextWindow = 2; maxOutputTokens = 1", "contextWindow = 2; maxOutputTokens = 100000001"),
                        r"models\.m\.maxOutputTokens' is not of type"),
    "text for a package": (cloister('package = "cloisterd";'), r"cloister\.package' is not of type"),
    "no id": (cloister('tenants.globex.tokenFiles.main = "/etc/globex";'),
              r"tenants\.globex\.id' (was accessed but )?has no value defined|tenants\.globex\.id' is used but not defined"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_stand_in_refuses_what_nixos_refuses(name):
    settings, message = BROKEN[name]
    with pytest.raises(ValueError, match=message):
        evaluate(f"{machine(settings)}.machine")


def test_two_values_for_one_option_are_a_conflict():
    both = f"{{ imports = [ ({cloister('port = 1;')}) {{ services.cloister.port = 2; }} ]; }}"
    with pytest.raises(ValueError, match=r"cloister\.port' has conflicting definition values"):
        evaluate(f"{machine(both)}.machine")
    forced = both.replace("= 2;", f"= {lib()}.mkForce 2;")
    assert " --port 2 " in evaluate(f"{machine(forced)}.service.ExecStart")


def test_a_false_assertion_leaves_nothing_to_look_at():
    for result in ("machine", "unit", "service", "registry", "list"):
        with pytest.raises(ValueError, match=r"Failed assertions:\s+- services.cloister.port: 0 would"):
            evaluate(f"{machine(cloister('port = 0;'))}.{result}")


def test_a_package_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="attribute 'nonesuch' missing"):
        evaluate(f"{machine(cloister('package = pkgs.nonesuch;'))}.service")


# --- the same as the daemon says -------------------------------------------------------


def daemon_limits():
    """name to (low, high, default), of every number that "serve" takes."""
    text = subprocess.run([f"{BUILD}/cloisterd", "serve", "--help"], capture_output=True,
                          text=True, check=True).stdout
    return {name: tuple(map(int, numbers)) for name, *numbers in re.findall(
        r"^  --([a-z-]+) [A-Z]+\n      .*\((\d+) to (\d+); default (\d+)\)$", text, re.MULTILINE)}


def test_every_limit_of_the_daemon_is_an_option_of_the_module():
    limits = evaluate(f"import {ROOT}/nix/limits.nix")
    declared = {l["option"]: (l["min"], l["max"], l["default"]) for l in limits.values()}
    daemon = daemon_limits()
    assert daemon.pop("port") == (0, 65535, 4096)
    assert declared == daemon, "a limit in daemon/options.c is an option in nix/limits.nix"
    for name, limit in limits.items():
        words = limit["option"].split("-")
        assert name == words[0] + "".join(word.capitalize() for word in words[1:])
        whole = name.removesuffix("PerTenant")
        assert limit.get("share", name) in limits
        assert limit.get("share") == whole or not name.endswith("PerTenant") or whole not in limits


# Not for a service with a registry, and not for anything but tests.
NO_OPTION = {"workspace-root", "token-file", "allow-remote", "confine"}


def test_every_option_of_the_daemon_is_one_of_the_module():
    """With everything declared, all of them are on the command line, and none that it lacks.
    Programs for a database of its own, and the URL of another, exclude one another."""
    text = subprocess.run([f"{BUILD}/cloisterd", "serve", "--help"], capture_output=True,
                          text=True, check=True).stdout
    known = set(re.findall(r"^  --([a-z-]+)", text, re.MULTILINE))
    limits = evaluate(f"import {ROOT}/nix/limits.nix")
    lines = [f"limits.{name} = {limit['default']}" for name, limit in limits.items()]
    lines += [MODEL, SERVER, "allowHttpRepositories = true", 'corsOrigins = [ "https://a.example" ]',
              'trustedProxies = [ "192.0.2.9" ]', 'hostAddresses = [ "192.0.2.0/24" ]',
              'metricsTokenFile = "/etc/metrics"']
    managed, external = (set(re.findall(r" --([a-z-]+)", evaluate(f"{machine(settings)}.service.ExecStart")))
                         for settings in (cloister(";\n".join(lines)), cloister(";\n".join([*lines, URL]))))
    assert managed - external == {"postgres-bin"} and external - managed == {"database-url-file"}
    assert managed | external == known - NO_OPTION
    assert NO_OPTION < known and len(known) > 40


def test_the_daemon_accepts_the_registry_that_the_module_makes(good, tmp_path):
    """Its own check, with the directories and tokens of the registry put in place."""
    os.chmod(tmp_path, 0o755)
    text = json.dumps(good["much"]["registry"])
    for place in ("/srv/cloister", "/data", "/run/cloister-secrets"):
        text = text.replace(f'"{place}/', f'"{tmp_path}{place}/')
        os.makedirs(f"{tmp_path}{place}", exist_ok=True)
    for tenant in json.loads(text)["tenants"]:
        os.makedirs(tenant["workspaceRoot"])
        for credential in [c for c in tenant["credentials"] if "tokenFile" in c]:
            with open(credential["tokenFile"], "w", encoding="utf-8") as f:
                f.write(f"token-of-{credential['id']}")
            os.chmod(credential["tokenFile"], 0o400)
    registry = tmp_path / "tenants.json"
    registry.write_text(text, encoding="utf-8")
    models = json.dumps(good["much"]["models"])
    secrets = models + json.dumps(good["much"]["mcp"])
    for file in set(re.findall(r'"/run/cloister-secrets/([a-z0-9-]*)"', secrets)):
        place = tmp_path / "run" / "cloister-secrets" / file
        place.write_text("key-of-models", encoding="utf-8")
        place.chmod(0o400)
    text = models.replace('"/run/cloister-secrets/', f'"{tmp_path}/run/cloister-secrets/')
    (tmp_path / "models.json").write_text(text, encoding="utf-8")
    servers = json.dumps(good["much"]["mcp"]).replace('"/run/cloister-secrets/', f'"{tmp_path}/run/cloister-secrets/')
    (tmp_path / "mcp.json").write_text(servers, encoding="utf-8")
    done = subprocess.run([f"{BUILD}/cloisterd", "check", registry, "--models", tmp_path / "models.json",
                           "--mcp", tmp_path / "mcp.json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


# --- packages and flake ----------------------------------------------------------------


@pytest.fixture(scope="module")
def flake():
    """The outputs of flake.nix with the stand-in for nixpkgs, all derivations evaluated."""
    return evaluate(f"""
      let
        lib = {lib()};
        pkgs = import {ROOT}/integration/nix/pkgs.nix {{ inherit lib; }};
        flake = import {ROOT}/flake.nix;
        outputs = flake.outputs {{
          self = outputs;
          nixpkgs = {{ inherit lib; legacyPackages.x86_64-linux = pkgs; }};
        }};
        drv = d: {{ inherit (d) name drvPath; out = d.outPath; }};
        arguments = d: removeAttrs (d.args // {{
          buildInputs = map (p: p.name) d.args.buildInputs;
          nativeBuildInputs = map (p: p.name) d.args.nativeBuildInputs;
        }}) [ "src" "meta" ];
        overlay = pkgs // outputs.overlays.default (pkgs // overlay) pkgs;
        test = outputs.checks.x86_64-linux.vm.test;
      in {{
        inherit (flake) inputs;
        names = builtins.attrNames outputs;
        packages = builtins.mapAttrs (_: drv) outputs.packages.x86_64-linux;
        overlay = builtins.mapAttrs (_: drv) overlay.cloister;
        checks = builtins.mapAttrs (_: drv) outputs.checks.x86_64-linux;
        shell = drv outputs.devShells.x86_64-linux.default;
        demo = outputs.apps.x86_64-linux.demo;
        module = map toString outputs.nixosModules.default.imports;
        builds = builtins.mapAttrs (_: arguments) {{
          inherit (outputs.packages.x86_64-linux) cloisterd cloister-runner cloister-guest;
        }};
        rootfs = outputs.packages.x86_64-linux.rootfs-nix.drvAttrs.script;
        vm = {{ inherit (test) testScript; nodes = builtins.attrNames test.nodes; }};
      }}""")


def test_the_outputs_of_the_flake(flake):
    assert flake["names"] == ["apps", "checks", "devShells", "nixosModules", "overlays", "packages"]
    assert set(flake["packages"]) == {
        "cloisterd", "cloister-runner", "cloister-guest", "default", "prepare", "rootfs",
        "rootfs-nix", "runsc", "upgrade-database"}
    assert set(flake["checks"]) == {"unit", "module", "vm"}
    assert flake["packages"]["default"] == flake["packages"]["cloisterd"]
    assert flake["module"] == [f"{ROOT}/nix/module.nix"]
    assert re.fullmatch(r"/nix/store/[^/]+/bin/cloister-demo", flake["demo"]["program"])
    # What an operator gets by the overlay is what the flake builds.
    assert flake["overlay"]["cloisterd"] == flake["packages"]["cloisterd"]
    paths = [p["out"] for name, p in flake["packages"].items() if name != "default"]
    assert len(set(paths)) == len(paths)


def test_the_lock_pins_what_the_flake_names(flake):
    with open(f"{ROOT}/flake.lock", encoding="utf-8") as f:
        lock = json.load(f)
    assert lock["version"] == 7 and lock["nodes"][lock["root"]]["inputs"] == {"nixpkgs": "nixpkgs"}
    original, locked = (lock["nodes"]["nixpkgs"][key] for key in ("original", "locked"))
    assert set(flake["inputs"]) == {"nixpkgs"}
    assert flake["inputs"]["nixpkgs"]["url"] == (
        f"{original['type']}:{original['owner']}/{original['repo']}/{original['ref']}")
    assert re.fullmatch("[0-9a-f]{40}", locked["rev"])
    assert re.fullmatch(r"sha256-[A-Za-z0-9+/]{43}=", locked["narHash"])
    assert {key: locked[key] for key in ("owner", "repo", "type")} == {
        key: original[key] for key in ("owner", "repo", "type")}


def test_nix_itself_takes_flake_and_lock(tmp_path):
    """As "nix flake check" does without building: every output, by the kind it is of."""
    for name in ("repo", "nixpkgs", "home"):
        (tmp_path / name).mkdir()
    for name in ("Makefile", "flake.nix", "flake.lock", "tenants.example.json"):
        shutil.copy(f"{ROOT}/{name}", tmp_path / "repo")
    for name in ("common", "daemon", "docs", "guest", "integration", "nix", "runner", "scripts", "sql"):
        shutil.copytree(f"{ROOT}/{name}", tmp_path / "repo" / name,
                        ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("lib", "pkgs"):
        shutil.copy(f"{ROOT}/integration/nix/{name}.nix", tmp_path / "nixpkgs")
    (tmp_path / "nixpkgs" / "flake.nix").write_text("""{ outputs = _: rec {
      lib = import ./lib.nix;
      legacyPackages.x86_64-linux = import ./pkgs.nix { inherit lib; };
    }; }""", encoding="utf-8")
    places = {f"NIX_{name}_DIR": str(tmp_path / name.lower()) for name in ("STORE", "STATE", "LOG", "CONF")}

    def nix(*arguments):
        return subprocess.run(
            ["nix", "--extra-experimental-features", "nix-command flakes", "--option",
             "build-users-group", "", *arguments], capture_output=True, text=True, check=False,
            env={**os.environ, **places, "HOME": str(tmp_path / "home")})

    repo = f"path:{tmp_path}/repo"
    done = nix("flake", "check", "--offline", "--no-build", "--override-input", "nixpkgs",
               f"path:{tmp_path}/nixpkgs", repo)
    assert done.returncode == 0, done.stderr
    done = nix("flake", "metadata", "--offline", "--json", repo)
    assert done.returncode == 0, done.stderr
    with open(f"{ROOT}/flake.lock", encoding="utf-8") as f:
        assert json.loads(done.stdout)["locks"] == json.load(f)


DEBIAN = {"libmicrohttpd": "libmicrohttpd", "libpq": "libpq", "json-c": "json_c",
          "libsodium": "libsodium", "libseccomp": "libseccomp", "libmnl": "libmnl",
          "libnftnl": "libnftnl", "libcurl": "curl", "libargon2": "libargon2",
          "openssl": "openssl"}


@pytest.mark.parametrize("program", ["cloisterd", "cloister-runner", "cloister-guest"])
def test_a_package_is_what_the_makefile_builds(flake, program):
    """The libraries are those of the Makefile, by its names and by those of nixpkgs."""
    with open(f"{ROOT}/Makefile", encoding="utf-8") as f:
        makefile = f.read()
    wanted = re.search(rf"^pkgs\.{program} := (.*)$", makefile, re.MULTILINE).group(1).split()
    build = flake["builds"][program]
    given = next(flag for flag in build["makeFlags"] if flag.startswith("pkgs="))
    assert sorted(given.removeprefix("pkgs=").split()) == sorted(wanted)
    assert set(build["buildInputs"]) == {DEBIAN[name] for name in wanted} | (
        {"glibc-static"} if program == "cloister-guest" else set())
    assert build["buildFlags"] == [f"build/release/{program}"]
    assert build["nativeBuildInputs"] == ["pkg-config"]


@pytest.mark.parametrize("program", ["cloisterd", "cloister-runner", "cloister-guest"])
def test_a_package_has_all_sources_and_no_others(program, tmp_path):
    """What make would do in a directory with nothing but the package's sources."""
    found = evaluate(f"""
      let
        lib = {lib()} // {{ fileset = {{ unions = map toString; toSource = s: s.fileset; }}; }};
        pkgs = import {ROOT}/integration/nix/pkgs.nix {{ inherit lib; }};
        ours = import {ROOT}/nix/packages.nix {{ inherit pkgs lib; }};
      in {{ files = ours.{program}.args.src; inherit (ours.{program}.args) makeFlags buildFlags; }}""")
    for path in found["files"]:
        to = tmp_path / os.path.relpath(path, ROOT)
        shutil.copytree(path, to) if os.path.isdir(path) else shutil.copy(path, to)
    done = subprocess.run(["make", "-n", *found["makeFlags"], *found["buildFlags"]], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    compiled = set(re.findall(r"CC    ([a-z0-9_/]+\.c)", done.stdout))
    assert len(compiled) > 5
    with open(f"{ROOT}/Makefile", encoding="utf-8") as f:
        text = f.read().replace("\\\n", " ")
    folders = re.search(rf"^dirs\.{program} := (.*)$", text, re.MULTILINE).group(1).split()
    assert {os.path.dirname(path) for path in compiled} == set(folders)


def test_the_root_filesystem_has_what_the_runner_mounts_on(flake):
    with open(f"{ROOT}/runner/start.c", encoding="utf-8") as f:
        needed = re.search(r"needed\[\] = \{(.*?)\}", f.read(), re.DOTALL).group(1)
    names = re.findall(r'"/([a-z/.]+)"', needed)
    script = flake["rootfs"]
    made = set(re.search(r'mkdir -p "\$out"/\{(.*)\}', script).group(1).split(","))
    files = {"etc/resolv.conf"}
    assert len(names) > 6 and set(names) <= made | files
    assert '"$out/etc/resolv.conf"' in script and '"$out/cloister/guest"' in script
    assert "usr" in made and "nix.conf" in script


NODES = f"""
  let
    lib = {lib()};
    pkgs = import {ROOT}/integration/nix/pkgs.nix {{ inherit lib; }};
    ours = import {ROOT}/nix/packages.nix {{ inherit pkgs lib; }};
    test = (import {ROOT}/nix/vm-test.nix {{ inherit pkgs lib ours; module = "the module"; }}).test;
    # What the module sees of a node: without what is for the machine around it.
    outer = ["imports" "virtualisation" "specialisation"];
    parts = node: lib.concatMap parts (lib.filter builtins.isAttrs (node.imports or [ ])) ++ [ (removeAttrs node outer) ];
    machine = settings: import {ROOT}/integration/nix {{ inherit lib settings; }};
    plain = parts test.nodes.machine;
    special = name: machine {{ imports = plain ++ [ test.nodes.machine.specialisation.${{name}}.configuration ]; }};
    external = machine ({{ config, ... }}: {{ imports = parts (test.nodes.external {{ inherit config; }}); }});
    inherit (test.nodes.machine) specialisation;
  in
"""


@pytest.fixture(scope="module")
def nodes():
    wanted = "inherit (m) refused unit service registry list machine;"
    return evaluate(f"""{NODES} let one = m: {{ {wanted} }}; in {{
      machine = one (machine {{ imports = plain; }});
      external = one external;
      others = builtins.mapAttrs (name: _: one (special name)) specialisation;
      inherit (test.nodes.machine) virtualisation;
    }}""")


def test_the_machines_of_the_vm_test_are_good_ones(flake, nodes):
    compile(flake["vm"]["testScript"], "testScript", "exec")
    assert flake["vm"]["nodes"] == ["external", "machine"]
    assert all(node["refused"] == [] for node in (nodes["machine"], nodes["external"], *nodes["others"].values()))
    quota = [line for line in nodes["machine"]["list"].splitlines() if line.endswith("\t/data/small")]
    assert len(quota) == 1 and quota[0].split("\t")[2] == "8192"
    assert "/data" in nodes["virtualisation"]["fileSystems"]
    assert "--database-url-file" in nodes["external"]["service"]["ExecStart"]
    assert "/run/postgresql" in nodes["external"]["service"]["BindReadOnlyPaths"]


def test_what_the_vm_test_switches_to_does_what_it_is_for(nodes):
    """A change of tenants reloads, and another release restarts."""
    before, others = nodes["machine"], nodes["others"]
    reloads = {"more", "broken", "unread", "both", "rotated", "larger"}
    assert set(others) == reloads | {"next", "with-nix"}
    for name, other in others.items():
        assert (other["unit"]["unit"] == before["unit"]["unit"]) == (name in reloads), name
        assert (other["unit"]["triggers"] != before["unit"]["triggers"]) == (name in reloads), name
    tokens = {name: [len(t["credentials"]) for t in other["registry"]["tenants"]] for name, other in others.items()}
    assert tokens == {"unread": [], "more": [1, 1, 1], "broken": [1, 1, 1], "both": [2, 1], "rotated": [1, 1],
                      "larger": [1, 1], "next": [1, 1], "with-nix": [1, 1]}
    assert others["rotated"]["registry"] != before["registry"]
    assert "/etc/tokens/nobody" in others["broken"]["list"]
    assert len({re.search("--runner ([^ ]*)", m["service"]["ExecStart"])[1] for m in (before, others["next"])}) == 2


@pytest.mark.parametrize("node", ["machine", "external"])
def test_the_doctor_takes_the_command_line_of_the_service(nodes, node):
    """As the VM test has it; with --help nothing but the options themselves is judged."""
    words = shlex.split(nodes[node]["service"]["ExecStart"])
    for more, code in (([], 0), (["--no-such-option=1"], 2)):
        done = subprocess.run([f"{BUILD}/cloisterd", "doctor", *words[2:], *more, "--help"], capture_output=True,
                              text=True, check=False)
        assert words[1] == "serve" and done.returncode == code, done.stderr


def test_the_script_of_the_vm_test_is_of_its_files(flake):
    """Read into place as they are, behind what they know of the machines."""
    text = flake["vm"]["testScript"]
    for name in ("vm-client", "vm-test"):
        with open(f"{ROOT}/nix/{name}.py", encoding="utf-8") as f:
            assert f.read().strip() in text
    names = {"json": json}
    exec(text.split("\n\n#", 1)[0], names)
    data = names["DATA"]
    assert set(data["tenants"]) == {"acme", "globex", "small"}
    with open(f"{ROOT}/docs/operate-nixos.md", encoding="utf-8") as f:
        assert data["document"] == f.read()
    with open(f"{ROOT}/nix/vm-client.py", encoding="utf-8") as f, open(f"{ROOT}/nix/vm-test.py", encoding="utf-8") as g:
        used = set(re.findall(r"""DATA\[["'](\w+)["']\]""", f.read() + g.read()))
    assert used == set(data)
    assert data["runners"]["this"] != data["runners"]["next"]
