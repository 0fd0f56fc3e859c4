"""What the module refuses when it is evaluated, and what it takes just before that."""

import json
import os
import re
import subprocess

import pytest

from nix_eval import ROOT, evaluate, machine
from nix_settings import (
    ACME, FILE, GLOBEX, HASH, MODEL, SERVER, URL, changed_model, cloister, module, second)
from world import BUILD

# Where the unit sees nothing, whatever it is told: service.nix has the reasons.
HIDDEN = ["/boot", "/home", "/media", "/mnt", "/root", "/run/user", "/tmp", "/var/tmp"]
STORE = "${pkgs.writeText \"token\" \"secret\"}"


# Models that are good but for one thing, which the daemon would find at its start: what is
# changed, and the sentence.
REASONS = "reasoning = { "
MODELS = {
    "slash": ("/v1", "/v1/", ".baseUrl: ends with a slash"),
    "no host": ("https://m.example/v1", "https:///v1", ".baseUrl: has no host, or something else"),
    "no end of a host": ("m.example", "[::1", ".baseUrl: has no host, or something else"),
    "behind a host": ("m.example", "[::1]x", ".baseUrl: has no host, or something else"),
    "port 0": ("m.example", "m.example:00", ".baseUrl: has a port that is not"),
    "port 65536": ("m.example", "[::1]:65536", ".baseUrl: has a port that is not"),
    "no port": ("m.example", "m.example:", ".baseUrl: has no host, or something else"),
    "name of a port": ("m.example", "m.example:http", ".baseUrl: has no host, or something else"),
    "six digits": ("m.example", "m.example:000443", ".baseUrl: has no host, or something else"),
    "blank": ("/v1", "/v 1", ".baseUrl: is not up to 1,024 bytes of printable ASCII"),
    "long URL": ("/v1", "/" + "v" * 1007, ".baseUrl: is not up to 1,024 bytes"),
    "no label": ('label = "M"', 'label = ""', ".label: must be 1 to 256 bytes"),
    "long label": ('label = "M"', f'label = "{"é" * 128}M"', ".label: must be 1 to 256 bytes"),
    "no name": ('model = "m"', 'model = ""', ".model: must be 1 to 256 bytes"),
    "long name": ('model = "m"', f'model = "{"m" * 257}"', ".model: must be 1 to 256 bytes"),
    "efforts": ("label", REASONS + 'efforts = [ "low" "max" "low" ]; }; label', ".reasoning.efforts: one stands twice"),
    "budget": ('"messages"', f'"responses"; {REASONS}budget = true; }}', ".reasoning.budget: is for messages only"),
    "budget and efforts": ("label", REASONS + 'budget = true; efforts = [ "low" ]; }; label', ".reasoning.budget: is for messages only"),
    "summaries": ('"messages"', f'"chat-completions"; {REASONS}summaries = true; }}', ".reasoning.summaries: is for responses"),
    "summaries with a budget": ("label", REASONS + "budget = true; summaries = true; }; label", ".reasoning.summaries: is for"),
    "price": ("label", "prices = { input = -0.5; output = 1; }; label", ".prices.input: must be from 0 to 1,000,000"),
    "high price": ("label", "prices = { input = 1; output = 1000001; }; label", ".prices.output: must be from 0"),
    "price of the cached": ("label", "prices = { input = 1; output = 1; cached = -1; }; label", ".prices.cached: must be"),
    "name of a header": ("label", 'headers."X Y" = "a"; label', '.headers."X Y": a name is 1 to 64 letters'),
    "long name of a header": ("label", f'headers.{"X" * 65} = "a"; label', ": a name is 1 to 64 letters"),
    "reserved header": ("label", 'headers.Content-Type = "a"; label', '.headers."Content-Type": requests are made of it'),
    "empty header": ("label", 'headers.X-A = ""; label', '.headers."X-A": must be 1 to 256 bytes of printable'),
    "long header": ("label", f'headers.X-A = "{"a" * 257}"; label', '.headers."X-A": must be 1 to 256'),
    "header of two lines": ("label", 'headers.X-A = "a\\nb"; label', '.headers."X-A": must be 1 to 256'),
    "17 headers": ("label", 'headers = builtins.listToAttrs (builtins.genList (i: { name = "X-${toString i}"; value = "a"; }) 17); label', ".headers: more than 16"),
    "output beyond context": ("maxOutputTokens = 1", "maxOutputTokens = 3", ".maxOutputTokens: is more than contextWindow"),
}
# Good ones, just before that.
GOOD_MODELS = [
    ("m.example", "m.example:65535"), ("m.example", "[::1]:00443"), ("https://m.example/v1", "https://m"),
    ("/v1", "/" + "v" * 1006), ('label = "M"', f'label = "{"é" * 128}"'), ('model = "m"', f'model = "{"m" * 256}"'),
    ("label", REASONS + 'efforts = [ "low" "max" ]; summaries = true; }; label'),
    ("label", REASONS + "budget = true; }; label"),
    ('"messages"', f'"responses"; {REASONS}summaries = true; }}'),
    ('"messages"', f'"chat-completions"; {REASONS}efforts = [ "none" ]; }}'),
    ("label", "prices = { input = 0; output = 1000000; cached = 0.5; }; label"),
    ("label", f'headers.{"X" * 64} = "a b ~"; headers.X_Y = "{"a" * 256}"; label'),
    ("label", 'headers = builtins.listToAttrs (builtins.genList (i: { name = "X-${toString i}"; value = "a"; }) 16); label'),
    ("contextWindow = 2; maxOutputTokens = 1", "contextWindow = 100000000; maxOutputTokens = 100000000"),
]


def numbered(before, count, behind=""):
    """A list of so many texts, all of them different."""
    return f'(map (i: "{before}${{toString i}}{behind}") (builtins.genList (i: i) {count}))'


def more_of_model(old, new):
    assert MODEL.count(old) >= 1
    return cloister(MODEL.replace(old, new, 1))


REFUSED = {
    # who
    "name": (module(tenants=(("Acme", ACME),)), "tenants.Acme: a name is"),
    "long name": (module(tenants=(("a" * 65, ACME),)), "a name is 1 to 64"),
    "id": (second('tenants.globex.id = "globex";'), '.globex.id: "globex" is not a UUID'),
    "capital id": (second(f'tenants.globex.id = "{GLOBEX.upper()}";'), "is not a UUID in lower case"),
    "nil id": (second('tenants.globex.id = "00000000-0000-0000-0000-000000000000";'), "is nobody's"),
    "local id": (second('tenants.globex.id = "10ca1000-0000-8000-8000-000000000001";'), "is nobody's"),
    "same id": (second(f'tenants.globex.id = "{ACME}";'),
                "tenants.globex.id is the same as services.cloister.tenants.acme.id"),
    "no tenant": ("{ services.cloister.enable = true; }", "tenants: is empty; declare a tenant"),
    "no token": (second("tenants.globex.tokenFiles = { };"), ".globex: has no token"),
    "17 tokens": (second("tenants.globex.tokenFiles = lib.genAttrs (map toString (builtins.genList (i: i) 17)) (n: \"/etc/${n}\");"), "has 17 tokens, at most 16"),
    "hash": (second('tenants.globex.tokenHashes.next = "5994";'),
             '.globex.tokenHashes.next: "5994" is not 64 hex digits in lower case'),
    "capital hash": (second(f'tenants.globex.tokenHashes.next = "{HASH.upper()}";'), "is not 64 hex"),
    "hash and file": (second(f'tenants.globex.tokenHashes.main = "{HASH}";'),
                      ".globex.tokenHashes.main: the same name as in tokenFiles"),
    "same hash": (second(f"""tenants.globex.tokenHashes.next = "{HASH}";
        tenants.acme.tokenHashes.next = "{HASH}";"""), "is the same token as"),
    "metrics token in store": (cloister(f'metricsTokenFile = "{STORE}";'), "metricsTokenFile: "),
    "metrics token in workspace": (cloister('metricsTokenFile = "/srv/cloister/acme/t";'),
                                   "metricsTokenFile: /srv/cloister/acme/t lies below /srv/cloister"),
    "metrics token in state": (cloister('metricsTokenFile = "/var/lib/cloister/t";'),
                               "metricsTokenFile: /var/lib/cloister/t lies below /var/lib/cloister"),
    "metrics token of a tenant": (cloister('metricsTokenFile = "/run/secrets/acme";'),
                                  "metricsTokenFile: /run/secrets/acme is the same file as "),
    "environment in workspace": (cloister('environmentFiles = [ "/srv/cloister/acme/e" ];'),
                                 "environmentFiles: /srv/cloister/acme/e lies below /srv/cloister"),
    "models in workspace": (cloister('modelsFile = "/srv/cloister/acme/m";'),
                            "modelsFile: /srv/cloister/acme/m lies below /srv/cloister"),
    "no proxy": (cloister('trustedProxies = [ "proxy.example" ];'), "is not an IPv4 or IPv6 address"),
    "same token file": (second('tenants.globex.tokenFiles.main = "/run/secrets/acme";'),
                        "is the same file as"),
    # where
    "same workspace": (second('tenants.globex.workspace = "/srv/cloister/acme";'),
                       "overlaps the workspace of acme"),
    "inner workspace": (second('tenants.globex.workspace = "/srv/cloister/acme/a/b";'),
                        ".globex.workspace: /srv/cloister/acme/a/b overlaps the workspace of acme"),
    "outer workspace": (cloister(f"""
        tenants.a-b.id = "{GLOBEX}";
        tenants.a-b.tokenFiles.main = "/etc/b";
        tenants.a.id = "{GLOBEX[:-1]}6";
        tenants.a.tokenFiles.main = "/etc/a";
        tenants.inner.id = "{GLOBEX[:-1]}7";
        tenants.inner.tokenFiles.main = "/etc/i";
        tenants.inner.workspace = "/srv/cloister/a/b";"""), "overlaps the workspace of a, /srv/cloister/a"),
    "outside": (second('tenants.globex.workspace = "/var/globex";'),
                "is not below one of services.cloister.workspaceRoots (/srv/cloister)"),
    "root itself": (second('tenants.globex.workspace = "/srv/cloister";'), "is not below one of", 2),
    "sibling": (second('tenants.globex.workspace = "/srv/cloister-2/globex";'), "is not below one of"),
    "dots": (second('tenants.globex.workspace = "/srv/cloister/../etc";'), 'has "." or ".." in it'),
    "dot": (second('tenants.globex.workspace = "/srv/cloister/./globex";'), 'has "." or ".." in it'),
    "slash": (second('tenants.globex.workspace = "/srv/cloister/globex/";'), "ends with a slash"),
    "slashes": (second('tenants.globex.workspace = "/srv/cloister//globex";'), "has a double slash"),
    "relative": (second('tenants.globex.workspace = "globex";'), "is not an absolute path"),
    "percent": (second('tenants.globex.workspace = "/srv/cloister/%h";'), "has % in it"),
    "newline": (second('tenants.globex.workspace = "/srv/cloister/a\\nb";'), "has a control character"),
    "tab": (second('tenants.globex.tokenFiles.main = "/etc/a\\tb";'), "has a control character"),
    "in state": (second("""workspaceRoots = [ "/srv/cloister" "/var/lib/cloister/w" ];
        tenants.globex.workspace = "/var/lib/cloister/w/globex";"""), "the state directory", 2),
    # Both begin with the same seven digits when they are hashed.
    "same project": (cloister("""tenants.acme.id = "01980000-0000-7000-8000-00000000003d";
        tenants.acme.diskQuota = "1G";
        tenants.globex.id = "01980000-0000-7000-8000-0000000015a7";
        tenants.globex.diskQuota = "1G";""", tenants=(("acme", ACME), ("globex", GLOBEX))),
        "tenants.globex is by chance given the same quota project as services.cloister.tenants.acme"),
    # secrets
    "token in store": (second(f'tenants.globex.tokenFiles.main = "{STORE}";'),
                       "is in the Nix store, where everybody can read it"),
    "token's path in store": (second('tenants.globex.tokenFiles.main = "/nix/store/x";'),
                              "is in the Nix store, where everybody can read it"),
    "token in workspace": (second('tenants.globex.tokenFiles.main = "/srv/cloister/acme/t";'),
                           "lies inside the workspace of acme, who can read it"),
    "token in state": (second('tenants.globex.tokenFiles.main = "/var/lib/cloister/t";'),
                       "lies inside the state directory"),
    "token's dots": (second('tenants.globex.tokenFiles.main = "/etc/../t";'), 'has "." or ".." in it'),
    "environment in store": (cloister(f'environmentFiles = [ "{STORE}" ];'), "is in the Nix store"),
    "environment blank": (cloister('environmentFiles = [ "/etc/a b" ];'), "has a blank"),
    # egress and limits
    "allow nothing": (second('tenants.globex.egress.mode = "allow";'), "nothing is allowed"),
    "allow with public": (second('tenants.globex.egress.allow = [ { cidr = "192.0.2.0/24"; } ];'),
                          'only with mode "allow", not with "public"'),
    "network": (second("""tenants.globex.egress.mode = "allow";
        tenants.globex.egress.allow = [ { cidr = "192.0.2.1/24"; } ];"""),
        'allow, entry 1: "192.0.2.1/24" has bits below its prefix'),
    "no network": (second("""tenants.globex.egress.mode = "allow";
        tenants.globex.egress.allow = [ { cidr = "192.0.2.1"; } ];"""), "is not an IPv4 network"),
    "port": (second("""tenants.globex.egress.mode = "allow";
        tenants.globex.egress.allow = [ { cidr = "192.0.2.0/24"; ports = [ 65536 ]; } ];"""),
        "65536 is neither a port"),
    "range": (second("""tenants.globex.egress.mode = "allow";
        tenants.globex.egress.allow = [ { cidr = "192.0.2.0/24"; ports = [ "9-8" ]; } ];"""),
        '"9-8" is neither a port'),
    "no ports": (second("""tenants.globex.egress.mode = "allow";
        tenants.globex.egress.allow = [ { cidr = "192.0.2.0/24"; ports = [ ]; } ];"""), "ports is empty"),
    "17 ports": (second("""tenants.globex.egress.mode = "allow";
        tenants.globex.egress.allow = [ { cidr = "192.0.2.0/24"; ports = builtins.genList (i: i + 1) 17; } ];"""),
        "allow, entry 1: more than 16 ports and ranges"),
    "1,001 networks": (second("""tenants.globex.egress.mode = "allow";
        tenants.globex.egress.allow = builtins.genList (i: { cidr = "192.0.2.0/24"; }) 1001;"""),
        "globex.egress.allow: more than 1,000 networks"),
    "names without network": (second("""tenants.globex.egress.mode = "none";
        tenants.globex.egress.dns = "host";"""), 'nothing but "off"'),
    "resolver": (second('tenants.globex.egress.dns = [ "127.0.0.53" ];'), "is not the IPv4 address of a resolver"),
    "same resolver": (second('tenants.globex.egress.dns = [ "9.9.9.9" "9.9.9.9" ];'), "a resolver stands twice"),
    "resolvers": (second('tenants.globex.egress.dns = [ ];'), "0 resolvers, must be 1 to 3"),
    "cpus": (second("tenants.globex.limits.cpus = 0.05;"), "is not from 0.1 to 64 in hundredths"),
    "parts of cpus": (second("tenants.globex.limits.cpus = 1.005;"), "in hundredths"),
    "memory of all": (second("""unit.memoryMax = "2G";
        tenants.globex.limits.memoryMiB = 1537;"""), "1537 is more than all sandboxes together have, 1536"),
    "processes of all": (second("""unit.tasksMax = 2048;
        tenants.globex.limits.processes = 321;"""), "321 take 1027 tasks, more than all sandboxes together have, 1024"),
    "model": (second(f'{FILE};\ntenants.globex.models = [ "a b" ];'), '"a b" is not the id of a model'),
    "same model": (second(f'{FILE};\ntenants.globex.models = [ "a" "a" ];'), "models: one stands twice"),
    "33 models": (second(f"{FILE};\ntenants.globex.models = map toString (builtins.genList (i: i) 33);"),
                  "models: more than 32"),
    "model that is not declared": (cloister('tenants.acme.models = [ "demo" "gpt" ];'),
                                   "acme.models: not declared in services.cloister.models: gpt (declared: demo)"),
    "demo among others": (cloister(f"""{MODEL};
        tenants.acme.models = [ "m" "demo" ];"""), "acme.models: not declared in services.cloister.models: demo (declared: m)"),
    "model's id": (changed_model("models.m", 'models."a b"'), "an id is 1 to 64"),
    "demo declared": (changed_model("models.m", "models.demo"), "demo is the built-in model"),
    "key in store": (changed_model("/etc/key", "/nix/store/x/key"), "is in the Nix store"),
    "key in workspace": (changed_model("/etc/key", "/srv/cloister/acme/key"), "lies inside /srv/cloister,"),
    "key in state": (changed_model("/etc/key", "/var/lib/cloister/key"), "lies inside /var/lib/cloister,"),
    "key's dots": (changed_model("/etc/key", "/etc/../key"), 'has "." or ".." in it'),
    "key in the open": (changed_model("https", "http"), "would carry the key unencrypted"),
    "key to a lookalike": (changed_model("https://m.example", "http://127.0.0.1.example"), "unencrypted"),
    "address": (changed_model("https://", "m"), "begins neither with https:// nor"),
    "key in the address": (changed_model("m.example", "me:secret@m.example"), "has a user, a query or a fragment"),
    "key in the query": (changed_model("/v1", "/v1?k=secret"), "has a user, a query or a fragment"),
    "key in a header": (changed_model('model = "m"', 'model = "m"; headers.X-API-Key = "secret"'), 'headers."X-API-Key": may carry a key'),
    **{f"model: {name}": (more_of_model(old, new), message) for name, (old, new, message) in MODELS.items()},
    "token in the address": (cloister(SERVER.replace("s.example", "me:secret@s.example")), "has a user, a query or a fragment"),
    "65 models": (cloister(f"models = lib.genAttrs {numbered('m', 65)} (id: {{ label = id"
                           "; api = \"messages\"; baseUrl = \"https://m\"; model = id; contextWindow = 1; maxOutputTokens = 1; })"),
                  "services.cloister.models: more than 64"),
    "models' dots": (cloister('modelsFile = "/etc/../models.json";'), 'modelsFile: "/etc/../models.json" has "." or ".." in it'),
    "two files of models": (cloister(f"""{MODEL};
        modelsFile = "/etc/models.json";"""), "modelsFile: and models exclude one another"),
    "server's id": (cloister(SERVER.replace("mcp.s", "mcp.a_b")), "an id is 1 to 24 of a-z"),
    "server's address": (cloister(SERVER.replace("https://", "m")), "begins neither with https:// nor"),
    "server's token in the open": (cloister(SERVER.replace("https", "http")), "would carry the key unencrypted"),
    "server's token in store": (cloister(SERVER.replace("/etc/token", "/nix/store/x/token")),
                                "is in the Nix store"),
    "33 servers": (cloister("mcp = lib.genAttrs (builtins.genList (i: \"s${toString i}\") 33) "
                            "(n: { url = \"https://s\"; })"), "cloister.mcp: more than 32"),
    "server's port": (cloister(SERVER.replace("s.example", "s.example:0")), "url: has a port that is not from 1 to 65535"),
    "reserved header": (cloister(SERVER.replace("; }", '; tokenHeader = "Mcp-Session-Id"; }')), "s\".tokenHeader: must be 1 to 64"),
    "header with a blank": (cloister(SERVER.replace("; }", '; tokenHeader = "X Key"; }')), "s\".tokenHeader: must be 1 to 64"),
    "header of no token": (cloister('mcp.s = { url = "https://s"; tokenHeader = "X"; };'), "there is no tokenFile"),
    "server that is not declared": (cloister(f"""{SERVER};
        tenants.acme.mcp = [ "s" "t" ];"""), "acme.mcp: not declared in services.cloister.mcp: t"),
    "same server": (cloister(f"""{SERVER};
        tenants.acme.mcp = [ "s" "s" ];"""), "acme.mcp: one stands twice"),
    "33 servers of a tenant": (cloister(f"tenants.acme.mcp = {numbered('s', 33)};"), "tenants.acme.mcp: more than 32", 2),
    **{f"models in {place}": (cloister(f'modelsFile = "{place}/models.json";'),
                              f"modelsFile: {place}/models.json is where the unit cannot see it")
       for place in ["/run", *HIDDEN]},
    # the whole
    "share": (cloister("limits.maxRunningTurnsPerTenant = 17;"),
              "limits.maxRunningTurnsPerTenant: 17 is more than limits.maxRunningTurns, 16"),
    "set share": (cloister("""limits.maxEventStreams = 9;
        limits.maxEventStreamsPerTenant = 10;"""), "10 is more than limits.maxEventStreams, 9"),
    "remote": (cloister('host = "192.0.2.1";'), "can be reached from other machines, and services.cloister.allowRemote is not set"),
    "all addresses": (cloister('host = "0.0.0.0";'), "allowRemote is not set"),
    "all of IPv6": (cloister('host = "::";'), "allowRemote is not set"),
    "host name": (cloister("""host = "localhost";
        allowRemote = true;"""), "localhost is not an IPv4 or IPv6 address"),
    "port 0": (cloister("port = 0;"), "another port at each start"),
    "origin": (cloister('corsOrigins = [ "https://App.example/" ];'), "corsOrigins: https://App.example/ is not"),
    "257 origins": (cloister(f"corsOrigins = {numbered('https://o', 257)};"), "corsOrigins: more than 256"),
    "257 addresses": (cloister('hostAddresses = builtins.genList (i: "10.${toString (i / 256)}.${toString (i - i / 256 * 256)}.0/24") 257;'),
                      "hostAddresses: more than 256"),
    "257 proxies": (cloister(f"trustedProxies = {numbered('2001:db8::', 257)};"), "trustedProxies: more than 256"),
    "host address": (cloister('hostAddresses = [ "10.0.0.1/8" ];'), "has bits below its prefix"),
    "root": (cloister('user = "root";'), "user: root is not the service's own"),
    "nobody": (cloister('user = "nobody";'), "nobody is not the service's own"),
    "users": (cloister('group = "users";'), "group: users is not the service's own"),
    "user name": (cloister('user = "a b";'), "is no name for a user"),
    "group name": (cloister('group = "a b";'), "group: a b is no name for a group"),
    "person": (module('users.users.cloister.isNormalUser = true;'), "is a person's user"),
    "groups": (module('users.users.cloister.extraGroups = [ "docker" ];'), "is in other groups (docker)"),
    "member": (module('users.groups.kvm.members = [ "cloister" ];'), "is in other groups (kvm)"),
    "shared group": (module('users.users.eve.group = "cloister";'), "others are in cloister (eve)"),
    "shared by members": (module('users.groups.cloister.members = [ "eve" ];'), "others are in cloister (eve)"),
    "shared user": (module('systemd.services.web.serviceConfig.User = "cloister";'), "cloister also runs web"),
    "state": (cloister('stateDirectory = "../x";'), "is not a path below /var/lib"),
    "no roots": (cloister("workspaceRoots = [ ];"), "workspaceRoots: is empty", 2),
    "root of all": (cloister('workspaceRoots = [ "/srv/cloister" "/" ];'), "is the root directory"),
    **{f"root below {place}": (cloister(f'workspaceRoots = [ "/srv/cloister" "{place}/eve" ];'),
                               f"workspaceRoots: {place}/eve is below {place}, which the unit cannot see")
       for place in HIDDEN},
    "hidden root": (cloister('workspaceRoots = [ "/srv/cloister" "/mnt" ];'), "/mnt is below /mnt, which"),
    "root of devices": (cloister('workspaceRoots = [ "/srv/cloister" "/dev/shm" ];'), "belongs to the system"),
    "root with blank": (cloister('workspaceRoots = [ "/srv/cloister" "/srv/a b" ];'), "has a blank"),
    "root with percent": (cloister('workspaceRoots = [ "/srv/cloister" "/srv/%i" ];'), "has % in it"),
    "root of the system": (cloister('workspaceRoots = [ "/srv/cloister" "/etc/w" ];'), "belongs to the system"),
    "two registries": (cloister('tenantRegistryFile = "/etc/tenants.json";'), "exclude one another"),
    "registry in store": ("""{ services.cloister.enable = true;
        services.cloister.tenantRegistryFile = "/nix/store/x/tenants.json"; }""", "is in the Nix store, and each change"),
    "registry in state": ("""{ services.cloister.enable = true;
        services.cloister.tenantRegistryFile = "/var/lib/cloister/tenants.json"; }""",
                          "tenantRegistryFile: /var/lib/cloister/tenants.json lies inside the state directory"),
    "registry's dots": ("""{ services.cloister.enable = true;
        services.cloister.tenantRegistryFile = "/etc/./tenants.json"; }""",
                        'tenantRegistryFile: "/etc/./tenants.json" has "." or ".." in it'),
    "registry in workspaces": ("""{ services.cloister.enable = true;
        services.cloister.tenantRegistryFile = "/srv/cloister/tenants.json"; }""", "where workspaces are"),
    **{f"registry in {place}": (f"""{{ services.cloister.enable = true;
        services.cloister.tenantRegistryFile = "{place}/tenants.json"; }}""",
        f"tenantRegistryFile: {place}/tenants.json is where the unit cannot see it") for place in ["/run", *HIDDEN]},
    "another PostgreSQL": (cloister("database.package = pkgs.postgresql_18;"),
                           "is PostgreSQL 18.1, and the database is of 17 (services.cloister.database.majorVersion); to "
                           "upgrade it, stop the service, run upgrade-database /var/lib/cloister cloister OLD/bin NEW/bin as "
                           "root (docs/operate-nixos.md, \"Another PostgreSQL\"), and set database.majorVersion = 18"),
    "another PostgreSQL of another user": (cloister("""database.package = pkgs.postgresql_18;
        stateDirectory = "boxes";
        user = "boxer";"""), "run upgrade-database /var/lib/boxes boxer OLD/bin NEW/bin as root"),
    "no PostgreSQL": (cloister("database.majorVersion = 16;"), "this nixpkgs has no PostgreSQL 16; name one in "
                      "services.cloister.database.package (an older nixpkgs has it), or upgrade: docs/operate-nixos.md"),
    "URL in store": (cloister(f'database.urlFile = "{STORE}";'), "database.urlFile: "),
    "URL's path in store": (cloister('database.urlFile = "/nix/store/x";'), "is in the Nix store, where everybody can read it"),
    "URL's dots": (cloister('database.urlFile = "/etc/../db";'), 'database.urlFile: "/etc/../db" has "." or ".." in it'),
    "URL's percent": (cloister('database.urlFile = "/etc/%n";'), "database.urlFile: \"/etc/%n\" has % in it"),
    "URL itself": (cloister('database.urlFile = "postgresql://h/cloister";'), "is not an absolute path"),
    "URL's blank": (cloister('database.urlFile = "/etc/a b";'), "has a blank"),
    "URL in workspace": (cloister('database.urlFile = "/srv/cloister/acme/db";'), "lies below /srv/cloister, where others"),
    "URL in state": (cloister('database.urlFile = "/var/lib/cloister/db";'), "lies below /var/lib/cloister, where others"),
    "URL of a tenant": (cloister('database.urlFile = "/run/secrets/acme";'), "database.urlFile: /run/secrets/acme "
                        "is the same file as services.cloister.tenants.acme.tokenFiles.main"),
    "URL and version": (cloister(f"""{URL};
        database.majorVersion = 17;"""), "database.majorVersion: is of the database that the service runs itself, "
        "and services.cloister.database.urlFile names another"),
    "URL and package": (cloister(f"""{URL};
        database.package = pkgs.postgresql_18;"""), "database.package: is of the database that the service runs itself"),
    "socket alone": (cloister('database.socketDirectory = "/run/postgresql";'), "urlFile names, and that is not set"),
    "socket's dots": (cloister(f"""{URL};
        database.socketDirectory = "/run/../postgresql";"""), 'has "." or ".." in it'),
    "socket's slash": (cloister(f"""{URL};
        database.socketDirectory = "/run/postgresql/";"""), "socketDirectory: \"/run/postgresql/\" ends with a slash"),
    "socket's percent": (cloister(f"""{URL};
        database.socketDirectory = "/run/%n";"""), "has % in it"),
    "socket's colon": (cloister(f"""{URL};
        database.socketDirectory = "/run/a:b";"""), "has a colon in it"),
    "socket's relative": (cloister(f"""{URL};
        database.socketDirectory = "run/postgresql";"""), "is not an absolute path"),
    "sockets of all": (cloister(f"""{URL};
        database.socketDirectory = "/run";"""), "/run is not a directory of the database server's alone"),
    "socket in workspace": (cloister(f"""{URL};
        database.socketDirectory = "/srv/cloister/acme";"""), "is not a directory of the database server's alone"),
    "socket unseen": (cloister(f"""{URL};
        database.socketDirectory = "/tmp";"""), "/tmp is where the unit cannot see it"),
    "no server name": (cloister("reverseProxy.enable = true;"), "reverseProxy.serverName: is needed"),
    "no namespaces": (module("security.allowUserNamespaces = false;"), "every sandbox is made of user namespaces"),
}


@pytest.fixture(scope="module")
def refused():
    """All at once: the messages of failed assertions are values."""
    texts = [f"{json.dumps(name)} = {machine(case[0])}.refused;" for name, case in REFUSED.items()]
    return evaluate(f"{{ {' '.join(texts)} }}")


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused_in_one_sentence(refused, name):
    _, message, *count = REFUSED[name]
    assert len(refused[name]) == (count[0] if count else 1), refused[name]
    assert any(message in text for text in refused[name]), refused[name]
    assert all(re.match(r"(services\.cloister|security)\.[A-Za-z0-9.-]+", text) for text in refused[name])


def judged_by_the_daemon(tmp_path, models):
    """What its own check says of a file of models."""
    os.makedirs(tmp_path / "workspace", exist_ok=True)
    (tmp_path / "tenants.json").write_text(json.dumps({"version": 1, "tenants": [{
        "id": ACME, "name": "acme", "workspaceRoot": f"{tmp_path}/workspace",
        "credentials": [{"id": GLOBEX, "tokenHash": HASH}]}]}), encoding="utf-8")
    (tmp_path / "models.json").write_text(models, encoding="utf-8")
    done = subprocess.run([f"{BUILD}/cloisterd", "check", tmp_path / "tenants.json", "--models",
                           tmp_path / "models.json"], capture_output=True, text=True, check=False)
    assert "tenants" not in done.stderr.replace("tenants.json", ""), done.stderr
    return done


def test_the_daemon_judges_models_the_same(tmp_path):
    """What is refused here would have kept it from starting, and what is not, it takes."""
    os.chmod(tmp_path, 0o755)
    changes = [*((old, new) for old, new, _ in MODELS.values()), *GOOD_MODELS]
    texts = [machine(more_of_model(old, new).replace('apiKeyFile = "/etc/key";', "", 1)) for old, new in changes]
    found = evaluate(f"map (m: {{ inherit (m) refused given; }}) [ {' '.join(texts)} ]")
    assert [bool(each["refused"]) for each in found] == [True] * len(MODELS) + [False] * len(GOOD_MODELS)
    for change, each in zip(changes, found, strict=True):
        done = judged_by_the_daemon(tmp_path, each["given"]["models"])
        assert (done.returncode != 0) == bool(each["refused"]), (change, each["refused"], done.stderr)


def test_the_headers_that_requests_are_made_of_are_those_of_the_daemon():
    with open(f"{ROOT}/daemon/model/endpoint.c", encoding="utf-8") as f:
        body = re.search(r"bool endpoint_header_reserved.*?= \{(.*?)\};", f.read(), re.DOTALL).group(1)
    names = re.findall(r'"([a-z-]+)"', body)
    with open(f"{ROOT}/nix/endpoints.nix", encoding="utf-8") as f:
        body = re.search(r"isReserved =.*?\[(.*?)\];", f.read(), re.DOTALL).group(1)
    assert len(names) > 10 and names == re.findall(r'"([a-z-]+)"', body)


def test_as_many_tenants_as_a_registry_holds():
    """Without options around them, which would take most of the time."""
    assert evaluate(f"""
      let
        tenant = i: {{
          name = "t${{toString i}}";
          value = {{
            id = "01980000-0000-7000-8000-${{builtins.substring 0 12 (builtins.hashString "sha256" (toString i))}}";
            workspace = "/srv/cloister/t${{toString i}}";
            tokenFiles.main = "/etc/tokens/t${{toString i}}";
            tokenHashes = {{ }};
            egress = {{ mode = "public"; allow = [ ]; dns = null; }};
            limits.cpus = null;
            models = null;
            mcp = [ ];
            diskQuota = null;
          }};
        }};
        faults = count: (import {ROOT}/nix/tenants.nix {{
          tenants = builtins.listToAttrs (builtins.genList tenant count);
          workspaceRoots = [ "/srv/cloister" ];
          stateDirectory = "/var/lib/cloister";
          secretDirectory = "/run/cloister-secrets";
        }}).faults;
      in [ (faults 4096) (faults 4097) ]""") == [[], ["services.cloister.tenants: more than 4,096"]]


def test_the_limits_of_what_is_refused_are_accepted():
    texts = [
        module(tenants=(("a" * 64, ACME),)),
        second("""unit.memoryMax = "2G";
          tenants.globex.limits.memoryMiB = 1536;"""),
        second("""unit.tasksMax = 2048;
          tenants.globex.limits.processes = 320;"""),
        second('tenants.globex.workspace = "/srv/cloister/acme-2";'),
        second('tenants.globex.workspace = "/srv/cloister/deep/er/globex";'),
        second('tenants.globex.workspace = "/srv/cloister/..globex";'),
        cloister('workspaceRoots = [ "/srv/cloister" "/data" "/mntdata" "/var/lib/work" ];'),
        cloister('modelsFile = "/tmpfiles/models.json";'),
        cloister("""limits.maxRunningTurns = 2;"""),
        cloister("limits.maxRunningTurnsPerTenant = 16;"),
        cloister('host = "127.0.0.2";'), cloister('host = "::1";'),
        cloister("""database.majorVersion = 18;"""),
        cloister(f"""{URL};
          database.socketDirectory = "/run/postgresql-17/main";"""),
        cloister(f"""{URL};
          database.socketDirectory = "/var/lib/postgresql/socket";"""),
        cloister("""database.majorVersion = 15;
          database.package = pkgs.postgresql_15;"""),
        second("tenants.globex.limits.cpus = 64;"), second("tenants.globex.limits.cpus = 0.1;"),
        cloister(f"corsOrigins = {numbered('https://o', 256)};"),
        cloister(f"trustedProxies = {numbered('2001:db8::', 256)};"),
        cloister(f"hostAddresses = {numbered('10.', 256, '.0.0/16')};"),
        second("""tenants.globex.egress.mode = "allow";
          tenants.globex.egress.allow = builtins.genList (i: { cidr = "192.0.2.0/24"; ports = builtins.genList (i: i + 1) 16; }) 1000;"""),
        "{ services.cloister.enable = true; services.cloister.tenantRegistryFile = \"/etc/t.json\"; }",
        "{ }",
    ]
    assert evaluate(f"map (m: m.refused) [ {' '.join(machine(t) for t in texts)} ]") == [[]] * len(texts)
