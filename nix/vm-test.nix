# The module on a machine of its own: install, tenants added and taken away without a
# restart, another version of the runner and back.
{ pkgs, module }:

let
  acme = "01980000-0000-7000-8000-00000000ac3e";
  globex = "01980000-0000-7000-8000-00000091b0e5";
  # For a test alone: a token in a configuration is a token for everybody.
  token = name: "${name}-8d2b7c0f4e6a91536c9e1f7a3b5d0482";
in
pkgs.testers.runNixOSTest {
  name = "cloister";

  nodes.machine =
    { pkgs, lib, ... }:
    {
      imports = [ module ];
      virtualisation.memorySize = 3072;
      virtualisation.cores = 2;
      environment.systemPackages = [
        pkgs.curl
        pkgs.procps
      ];
      # Copies: the way to a secret may not lead through the store.
      environment.etc."tokens/acme" = {
        text = token "acme";
        mode = "0400";
      };
      environment.etc."tokens/globex" = {
        text = token "globex";
        mode = "0400";
      };
      services.cloister = {
        enable = true;
        tenants.acme = {
          id = acme;
          tokenFiles.test = "/etc/tokens/acme";
        };
      };
      specialisation.more.configuration.services.cloister.tenants.globex = {
        id = globex;
        tokenFiles.test = "/etc/tokens/globex";
      };
      # Parses, and names a token that is not there.
      specialisation.broken.configuration.services.cloister.tenants.globex = {
        id = globex;
        tokenFiles.test = "/etc/tokens/nobody";
      };
      specialisation.newer.configuration.services.cloister.runnerPackage =
        lib.mkForce (
          pkgs.runCommand "cloister-runner-newer" { } ''
            install -D -m 0755 ${(import ./packages.nix { inherit pkgs lib; }).cloister-runner}/bin/cloister-runner \
              "$out/bin/cloister-runner"
          ''
        );
    };

  testScript = ''
    import json

    SYSTEM = "/run/booted-system"
    API = "http://127.0.0.1:4096"
    TOKENS = {"acme": "${token "acme"}", "globex": "${token "globex"}"}


    def call(tenant, path, body=None):
        data = f"--json '{json.dumps(body)}'" if body is not None else ""
        answer = machine.succeed(
            f"curl -s -w '\n%{{http_code}}' -H 'Authorization: Bearer {TOKENS[tenant]}' {data} {API}{path}"
        )
        text, _, status = answer.rpartition("\n")
        return int(status), text


    def run(tenant, command):
        status, text = call(tenant, "/v1/sessions", {"model": "demo"})
        assert status == 201, text
        session = json.loads(text)["id"]
        status, text = call(tenant, f"/v1/sessions/{session}/turns", {"input": f"$ {command}"})
        assert status == 202, text
        turn = json.loads(text)["id"]
        machine.wait_until_succeeds(
            f"curl -sf -H 'Authorization: Bearer {TOKENS[tenant]}' {API}/v1/turns/{turn}/result", 120
        )
        return call(tenant, f"/v1/turns/{turn}/result")[1]


    def launcher():
        return machine.succeed("systemctl show -p MainPID --value cloister").strip()


    def switch(name):
        machine.succeed(f"{SYSTEM}/specialisation/{name}/bin/switch-to-configuration test")


    machine.wait_for_unit("cloister.service")

    with subtest("a turn runs in a sandbox, under the unit's walls"):
        assert "gVisor" in run("acme", "dmesg"), "not in gVisor"
        assert call("globex", "/v1/sessions")[0] == 401
        machine.succeed("test $(stat -c %U:%a /srv/cloister/acme) = cloister:700")

    with subtest("the registry is a file of root's, and tokens are the service's alone"):
        machine.succeed("test ! -L /etc/cloister/tenants.json -a $(stat -c %U /etc/cloister/tenants.json) = root")
        machine.succeed("test $(stat -c %U:%a /run/cloister-secrets/*) = cloister:400")

    before = launcher()

    with subtest("a tenant is added without a restart"):
        switch("more")
        assert launcher() == before
        assert call("globex", "/v1/sessions")[0] == 200

    with subtest("and taken away"):
        machine.succeed(f"{SYSTEM}/bin/switch-to-configuration test")
        assert launcher() == before
        assert call("globex", "/v1/sessions")[0] == 401

    with subtest("what is broken leaves the old state serving"):
        machine.fail(f"{SYSTEM}/specialisation/broken/bin/switch-to-configuration test")
        assert launcher() == before
        assert call("acme", "/v1/sessions")[0] == 200
        machine.succeed("journalctl -u cloister | grep -q 'token of globex: /etc/tokens/nobody is not there'")
        machine.succeed(f"{SYSTEM}/bin/switch-to-configuration test")

    with subtest("another runner restarts, and so does the way back"):
        switch("newer")
        machine.wait_for_unit("cloister.service")
        newer = launcher()
        assert newer != before
        run("acme", "true")
        machine.succeed("pgrep -af cloister-runner-newer")
        machine.succeed(f"{SYSTEM}/bin/switch-to-configuration test")
        machine.wait_for_unit("cloister.service")
        assert launcher() != newer
        run("acme", "true")
  '';
}
