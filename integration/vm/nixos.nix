# What the module makes of tenants whose disk is bounded, for a machine that plays NixOS: the
# registry, the list for nix/prepare-tenants, and what differs in the unit.
let
  lib = import ../nix/lib.nix;
  tenant = name: id: diskQuota: {
    inherit id diskQuota;
    workspace = "/srv/bounded/deep/${name}";
    tokenFiles.main = "/run/secrets/${name}";
  };
  declared =
    quotas:
    let
      machine = import ../nix {
        inherit lib;
        settings.services.cloister = {
          enable = true;
          workspaceRoots = [ "/srv/bounded" ];
          tenants.bounded = tenant "bounded" "01980000-0000-7000-8000-0000000b0d01" quotas.bounded;
          tenants.free = tenant "free" "01980000-0000-7000-8000-0000000b0d02" quotas.free;
        };
      };
    in
    {
      inherit (machine) list registry;
      unit = {
        inherit (machine.service)
          ExecStartPre
          ExecReload
          ReadWritePaths
          BindReadOnlyPaths
          ;
      };
    };
in
{
  first = declared {
    bounded = "1M";
    free = null;
  };
  larger = declared {
    bounded = "8M";
    free = null;
  };
  both = declared {
    bounded = "8M";
    free = "2M";
  };
}
