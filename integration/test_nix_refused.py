"""What the module refuses when it is evaluated, and what it takes just before that."""

import json
import re

import pytest

from nix_eval import evaluate, machine
from nix_settings import (
    ACME, FILE, GLOBEX, HASH, MODEL, SERVER, URL, changed_model, cloister, module, second)

# Where the unit sees nothing, whatever it is told: service.nix has the reasons.
HIDDEN = ["/boot", "/home", "/media", "/mnt", "/root", "/run/user", "/tmp", "/var/tmp"]
STORE = "${pkgs.writeText \"token\" \"secret\"}"
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
    "key in a header": (changed_model('model = "m"', 'model = "m"; headers.X-API-Key = "secret"'), "headers.X-API-Key: may carry a key"),
    "token in the address": (cloister(SERVER.replace("s.example", "me:secret@s.example")), "has a user, a query or a fragment"),
    "output beyond context": (changed_model("maxOutputTokens = 1", "maxOutputTokens = 3"),
                              "maxOutputTokens: is more than contextWindow"),
    "two files of models": (cloister(f"""{MODEL};
        modelsFile = "/etc/models.json";"""), "modelsFile: and models exclude one another"),
    "server's id": (cloister(SERVER.replace("mcp.s", "mcp.a_b")), "an id is 1 to 24 of a-z"),
    "server's address": (cloister(SERVER.replace("https://", "m")), "begins neither with https:// nor"),
    "server's token in the open": (cloister(SERVER.replace("https", "http")), "would carry the key unencrypted"),
    "server's token in store": (cloister(SERVER.replace("/etc/token", "/nix/store/x/token")),
                                "is in the Nix store"),
    "33 servers": (cloister("mcp = lib.genAttrs (builtins.genList (i: \"s${toString i}\") 33) "
                            "(n: { url = \"https://s\"; })"), "cloister.mcp: more than 32"),
    "header of no token": (cloister('mcp.s = { url = "https://s"; tokenHeader = "X"; };'), "there is no tokenFile"),
    "server that is not declared": (cloister(f"""{SERVER};
        tenants.acme.mcp = [ "s" "t" ];"""), "acme.mcp: not declared in services.cloister.mcp: t"),
    "same server": (cloister(f"""{SERVER};
        tenants.acme.mcp = [ "s" "s" ];"""), "acme.mcp: one stands twice"),
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
    "host address": (cloister('hostAddresses = [ "10.0.0.1/8" ];'), "has bits below its prefix"),
    "root": (cloister('user = "root";'), "user: root is not the service's own"),
    "nobody": (cloister('user = "nobody";'), "nobody is not the service's own"),
    "users": (cloister('group = "users";'), "group: users is not the service's own"),
    "user name": (cloister('user = "a b";'), "is no name for a user"),
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
    "registry in workspaces": ("""{ services.cloister.enable = true;
        services.cloister.tenantRegistryFile = "/srv/cloister/tenants.json"; }""", "where workspaces are"),
    **{f"registry in {place}": (f"""{{ services.cloister.enable = true;
        services.cloister.tenantRegistryFile = "{place}/tenants.json"; }}""",
        f"tenantRegistryFile: {place}/tenants.json is where the unit cannot see it") for place in ["/run", *HIDDEN]},
    "another PostgreSQL": (cloister("database.package = pkgs.postgresql_18;"),
                           "is PostgreSQL 18.1, and the database is of 17"),
    "no PostgreSQL": (cloister("database.majorVersion = 16;"), "this nixpkgs has no PostgreSQL 16"),
    "URL in store": (cloister(f'database.urlFile = "{STORE}";'), "database.urlFile: "),
    "URL's path in store": (cloister('database.urlFile = "/nix/store/x";'), "is in the Nix store, where everybody can read it"),
    "URL's dots": (cloister('database.urlFile = "/etc/../db";'), 'database.urlFile: "/etc/../db" has "." or ".." in it'),
    "URL's percent": (cloister('database.urlFile = "/etc/%n";'), "database.urlFile: \"/etc/%n\" has % in it"),
    "URL itself": (cloister('database.urlFile = "postgresql://h/cloister";'), "is not an absolute path"),
    "URL's blank": (cloister('database.urlFile = "/etc/a b";'), "has a blank"),
    "URL in workspace": (cloister('database.urlFile = "/srv/cloister/acme/db";'), "lies below /srv/cloister, where others"),
    "URL in state": (cloister('database.urlFile = "/var/lib/cloister/db";'), "lies below /var/lib/cloister, where others"),
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
        "{ services.cloister.enable = true; services.cloister.tenantRegistryFile = \"/etc/t.json\"; }",
        "{ }",
    ]
    assert evaluate(f"map (m: m.refused) [ {' '.join(machine(t) for t in texts)} ]") == [[]] * len(texts)
