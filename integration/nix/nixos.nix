# A stand-in for the options of NixOS that the module touches, of their types.
{ lib, pkgs, ... }:

let
  inherit (lib) mkOption types;
  option =
    type: default:
    mkOption {
      inherit type default;
      description = "As in NixOS.";
    };
  submodule = options: option (types.attrsOf (types.submodule { inherit options; })) { };
  strings = option (types.listOf types.str) [ ];
  value = types.oneOf [
    types.bool
    types.int
    types.str
  ];
  section = option (types.attrsOf (types.either value (types.listOf value))) { };
  etcFile =
    { name, config, ... }:
    {
      options = {
        text = option (types.nullOr types.lines) null;
        source = mkOption {
          type = types.path;
          description = "As in NixOS.";
        };
        mode = option types.str "symlink";
      };
      config.source = lib.mkIf (config.text != null) (
        lib.mkDefault (pkgs.writeText "etc-${builtins.replaceStrings [ "/" ] [ "-" ] name}" config.text)
      );
    };
in
{
  options = {
    assertions = option (types.listOf types.unspecified) [ ];
    warnings = strings;

    boot.kernelModules = strings;
    security.allowUserNamespaces = option types.bool true;
    security.lockKernelModules = option types.bool false;

    users.users = submodule {
      isSystemUser = option types.bool false;
      isNormalUser = option types.bool false;
      group = option types.str "";
      extraGroups = strings;
      description = option types.str "";
    };
    users.groups = submodule { members = strings; };

    networking.firewall.allowedTCPPorts = option (types.listOf types.port) [ ];

    environment.systemPackages = option (types.listOf types.package) [ ];
    environment.etc = option (types.attrsOf (types.submodule etcFile)) { };

    systemd.tmpfiles.rules = strings;
    systemd.services = submodule {
      description = option types.str "";
      after = strings;
      wants = strings;
      wantedBy = strings;
      before = strings;
      path = option (types.listOf types.package) [ ];
      script = option types.lines "";
      unitConfig = section;
      serviceConfig = section;
      reloadTriggers = option (types.listOf types.unspecified) [ ];
      restartTriggers = option (types.listOf types.unspecified) [ ];
    };

    services.postgresql = {
      enable = option types.bool false;
      package = option types.package pkgs.postgresql_17;
      authentication = option types.lines "";
    };
    services.nginx = {
      enable = option types.bool false;
      virtualHosts = submodule {
        enableACME = option types.bool false;
        forceSSL = option types.bool false;
        locations = submodule {
          proxyPass = option (types.nullOr types.str) null;
          extraConfig = option types.lines "";
        };
      };
    };
  };
}
