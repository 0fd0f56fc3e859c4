# The module on machines of its own: what "make check-vm" shows of the service on Debian, with
# what NixOS does about it. "machine" has the service's own database, "external" one of an
# operator's server. What is done there is in vm-client.py and vm-test.py.
#
# Left to the machines of Debian, whose programs are built from the same sources: the runner alone
# at limits that somebody changes (test_3_boundary.py), the tests of the end-to-end suite (test_4_core.py),
# the times of wrong tokens (test_9_flood.py), steps of the clock (test_3_clock.py), a trace of
# where processes are born (test_7_ends.py), all tenants beyond the unit's memory (test_6_tenants.py),
# a schema that is too new (test_5_upgrade.py), and the control of the reset, which wants another
# PostgreSQL (boot2/test_9_no_fsync.py).
{
  pkgs,
  lib,
  ours,
  module,
}:

let
  tenants = {
    acme = {
      id = "01980000-0000-7000-8000-00000000ac3e";
      workspace = "/srv/cloister/acme";
    };
    globex = {
      id = "01980000-0000-7000-8000-00000091b0e5";
      workspace = "/srv/cloister/globex";
    };
    # Whose bounds are narrow.
    small = {
      id = "01980000-0000-7000-8000-00000005a311";
      workspace = "/data/small";
    };
  };
  # For a test alone: a token in a configuration is a token for everybody.
  token = name: "${name}-8d2b7c0f4e6a91536c9e1f7a3b5d0482";
  password = "bd1f6c70a2e94d58";

  # A release that comes after this one: its runner is not the same, and its databases have a
  # migration more.
  next = {
    cloisterd = ours.cloisterd.overrideAttrs (_: {
      postPatch = ''
        cp ${../integration/vm/later/tenant.sql} sql/tenant/9999_later.sql
        cp ${../integration/vm/later/control.sql} sql/control/9999_later.sql
      '';
    });
    cloister-runner = ours.cloister-runner.overrideAttrs (_: {
      postPatch = ''
        echo 'const char runner_later[] = "later";' >>runner/main.c
      '';
    });
  };

  # What vm-client.py and vm-test.py know of all this.
  data = {
    api = "http://127.0.0.1:4096";
    registry = "/etc/cloister/tenants.json";
    probe = "/etc/probe";
    document = builtins.readFile ../docs/operate-nixos.md;
    tenants = builtins.mapAttrs (
      name: tenant:
      tenant
      // {
        tokens = {
          main = token name;
          next = token "next-${name}";
        };
      }
    ) tenants;
    inherit password;
    psql = "${pkgs.postgresql_17}/bin/psql";
    runners = {
      this = "${ours.cloister-runner}/bin/cloister-runner";
      next = "${next.cloister-runner}/bin/cloister-runner";
    };
  };

  # Copies: the way to a secret may not lead through the store.
  secret = text: {
    inherit text;
    mode = "0400";
  };
  entry = name: {
    inherit (tenants.${name}) id workspace;
    tokenFiles.main = "/etc/tokens/${name}";
  };

  common = {
    imports = [ module ];
    virtualisation = {
      memorySize = 4096;
      cores = 2;
      # What the build's own store is mounted as belongs to nobody in there, and the service
      # wants its programs to be root's.
      useNixStoreImage = true;
    };
    environment.systemPackages = [
      pkgs.curl
      pkgs.findutils
      pkgs.procps
      pkgs.python3
    ];
    # What a sandbox in the other machine is to reach, or not.
    networking.firewall.allowedTCPPorts = [ 8000 ];
    environment.etc = {
      "probe/inject.py".source = ../integration/inject.py;
      "probe/reach.py".source = ../integration/reach.py;
      "tokens/acme" = secret (token "acme");
      "tokens/next" = secret (token "next-acme");
      "tokens/globex" = secret (token "globex");
      "tokens/small" = secret (token "small");
    };
    services.cloister = {
      enable = true;
      package = ours.cloisterd;
      runnerPackage = ours.cloister-runner;
      tenants.acme = entry "acme";
    };
  };
in
pkgs.testers.runNixOSTest {
  name = "cloister";

  nodes.machine = {
    imports = [ common ];
    # A disk that counts projects, which what formats disks by itself does not make.
    virtualisation.emptyDiskImages = [
      {
        size = 512;
        driveConfig.deviceExtraOpts.serial = "data";
      }
    ];
    virtualisation.fileSystems."/data" = {
      device = "/dev/disk/by-id/virtio-data";
      fsType = "ext4";
      noCheck = true;
      options = [
        "prjquota"
        "x-systemd.requires=format-data.service"
      ];
    };
    systemd.services.format-data = {
      path = [
        pkgs.e2fsprogs
        pkgs.util-linux
      ];
      unitConfig.DefaultDependencies = false;
      serviceConfig = {
        Type = "oneshot";
        RemainAfterExit = true;
      };
      script = ''
        udevadm wait --timeout=60 /dev/disk/by-id/virtio-data
        blkid /dev/disk/by-id/virtio-data || mkfs.ext4 -q -O project,quota /dev/disk/by-id/virtio-data
      '';
    };
    services.cloister = {
      workspaceRoots = [
        "/srv/cloister"
        "/data"
      ];
      tenants.small = entry "small" // {
        limits = {
          memoryMiB = 256;
          processes = 32;
        };
        diskQuota = "8M";
      };
      limits.maxFailedAttempts = 20;
    };
    specialisation = {
      more.configuration.services.cloister.tenants.globex = entry "globex";
      # Parses, and names a token that is not there.
      broken.configuration.services.cloister.tenants.globex = entry "globex" // {
        tokenFiles.main = "/etc/tokens/nobody";
      };
      # Is no registry at all.
      unread.configuration.environment.etc."cloister/tenants.json".text = lib.mkForce ''
        {"version": 2, "tenants": [], "nonsense": true}
      '';
      # One of two tokens, and then the other alone.
      both.configuration.services.cloister.tenants.acme.tokenFiles.next = "/etc/tokens/next";
      rotated.configuration.services.cloister.tenants.acme.tokenFiles = lib.mkForce {
        next = "/etc/tokens/next";
      };
      larger.configuration.services.cloister.tenants.small.diskQuota = lib.mkForce "16M";
      with-nix.configuration.services.cloister.rootfs = ours.rootfs-nix;
      next.configuration.services.cloister = {
        package = lib.mkForce next.cloisterd;
        runnerPackage = lib.mkForce next.cloister-runner;
      };
    };
  };

  nodes.external =
    { config, ... }:
    {
      imports = [ common ];
      environment.etc."tokens/database" =
        secret "postgresql://cloister_owner:${password}@/cloister?host=/run/postgresql";
      services.cloister.database = {
        urlFile = "/etc/tokens/database";
        socketDirectory = "/run/postgresql";
      };
      # When the test has given the server what it needs.
      systemd.services.cloister.wantedBy = lib.mkForce [ ];
      services.postgresql = {
        enable = true;
        package = pkgs.postgresql_17;
        authentication = ''
          local all cloister_owner scram-sha-256
          local all +cloister_runtime scram-sha-256
        '';
      };
      systemd.services.cloister-database = {
        wants = [ "postgresql.service" ];
        after = [ "postgresql.service" ];
        before = [ "cloister.service" ];
        wantedBy = [ "cloister.service" ];
        serviceConfig = {
          Type = "oneshot";
          RemainAfterExit = true;
          User = "postgres";
        };
        script = ''
          set -o pipefail
          ${ours.cloisterd}/bin/cloisterd database-script |
            ${config.services.postgresql.package}/bin/psql -v ON_ERROR_STOP=1
        '';
      };
    };

  testScript = ''
    import json

    DATA = json.loads(${builtins.toJSON (builtins.toJSON data)})

    ${builtins.readFile ./vm-client.py}
    ${builtins.readFile ./vm-test.py}
  '';
}
