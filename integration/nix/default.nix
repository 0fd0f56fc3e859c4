# The module of nix/module.nix on a machine that a test describes, with nothing of NixOS but
# what stands in for it here.
#
#   nix-instantiate --eval --strict --json -A RESULT --arg settings '{ ... }' integration/nix
#
# settings is a module. lib may be that of nixpkgs. without: packages that this nixpkgs lacks.
{
  settings ? { },
  lib ? import ./lib.nix,
  without ? [ ],
}:

let
  pkgs = removeAttrs (import ./pkgs.nix { inherit lib; }) without;
  machine = lib.evalModules {
    modules = [
      ./nixos.nix
      ../../nix/module.nix
      settings
    ];
    specialArgs = { inherit pkgs; };
  };
  inherit (machine) config;
  refused = map (a: a.message) (lib.filter (a: !a.assertion) config.assertions);

  # As NixOS does: with an assertion that fails there is nothing else.
  judged =
    value:
    if refused == [ ] then
      value
    else
      throw "Failed assertions:\n${lib.concatStringsSep "\n" (map (text: "- ${text}") refused)}";

  service = config.systemd.services.cloister;
  file = name: config.environment.etc."cloister/${name}".text or null;
in
{
  # The faults alone, for tests of many at once.
  inherit refused;
  # What the daemon would be given all the same, for a test that has both judge.
  given.models = file "models.json";

  machine = judged {
    inherit (config) warnings users;
    inherit (config.boot) kernelModules;
    inherit (config.services) nginx;
    tmpfiles = config.systemd.tmpfiles.rules;
    packages = map (p: p.name) config.environment.systemPackages;
    etc = builtins.mapAttrs (_: f: { inherit (f) mode text; }) config.environment.etc;
  };

  # What NixOS compares to decide whether a service is restarted (unit) or reloaded (triggers).
  unit = judged {
    unit = builtins.toJSON (removeAttrs service [ "reloadTriggers" ]);
    triggers = map (t: "${t}") service.reloadTriggers;
  };
  service = judged service.serviceConfig;
  unitSection = judged (
    service.unitConfig
    // {
      inherit (service) after wants wantedBy;
    }
  );
  registry = judged (builtins.fromJSON (file "tenants.json"));
  list = judged (file "tenants.list");
  postgresql = judged (config.systemd.services.postgresql.serviceConfig or null);
  models = judged (builtins.fromJSON (file "models.json"));
  mcp = judged (builtins.fromJSON (file "mcp.json"));
}
