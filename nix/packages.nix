# The programs of Cloister, each built by the Makefile from the sources it needs.
{ pkgs, lib }:

let
  version = "0.1.0";

  # A change elsewhere in the repository builds nothing anew.
  source =
    files:
    lib.fileset.toSource {
      root = ../.;
      fileset = lib.fileset.unions ([ ../Makefile ] ++ files);
    };

  meta = {
    license = lib.licenses.mit;
    # Filters of system calls and the compiler's protections are written for this one.
    platforms = [ "x86_64-linux" ];
  };

  # The Makefile asks pkg-config for the libraries of all programs at once; here a program
  # is built alone, with its own.
  program =
    {
      name,
      files,
      libraries,
      packages,
    }:
    pkgs.stdenv.mkDerivation {
      pname = name;
      inherit version;
      src = source files;
      nativeBuildInputs = [ pkgs.pkg-config ];
      buildInputs = packages;
      strictDeps = true;
      enableParallelBuilding = true;
      # The Makefile hardens, more strictly and with checks of its own.
      hardeningDisable = [ "all" ];
      makeFlags = [
        "BUILD=build"
        "PKG=pkg-config"
        "pkgs=${libraries}"
        # Warnings of a newer compiler are for those who work on the sources.
        "CFLAGS=-Wno-error"
      ];
      buildFlags = [ "build/release/${name}" ];
      installPhase = ''
        runHook preInstall
        install -D -m 0755 build/release/${name} "$out/bin/${name}"
        runHook postInstall
      '';
      meta = meta // {
        mainProgram = name;
      };
    };

  json_c_static = pkgs.json_c.overrideAttrs (old: {
    cmakeFlags = (old.cmakeFlags or [ ]) ++ [ "-DBUILD_STATIC_LIBS=ON" ];
  });

  script =
    name: packages:
    pkgs.writeShellApplication {
      inherit name;
      runtimeInputs = packages;
      text = builtins.readFile (./. + "/${name}");
    };

  # As the repository has them, with the interpreters of this system.
  scripts =
    let
      files = source [
        ../scripts/demo
        ../scripts/lib.sh
        ../scripts/serve
      ];
    in
    pkgs.runCommand "cloister-scripts" { } ''
      cp -r ${files}/scripts "$out"
      chmod -R u+w "$out"
      patchShebangs "$out"
    '';

  programs = pkgs.buildEnv {
    name = "cloister-programs";
    paths = [
      all.cloisterd
      all.cloister-runner
      all.cloister-guest
    ];
    pathsToLink = [ "/bin" ];
  };

  all = rec {
    cloisterd = program {
      name = "cloisterd";
      files = [
        ../common
        ../daemon
        ../sql
      ];
      libraries = "libmicrohttpd libpq json-c libcurl libsodium libseccomp openssl";
      packages = [
        pkgs.libmicrohttpd
        pkgs.libpq
        pkgs.json_c
        pkgs.curl
        pkgs.libsodium
        pkgs.libseccomp
        pkgs.openssl
      ];
    };

    cloister-runner = program {
      name = "cloister-runner";
      files = [
        ../common
        ../runner
      ];
      libraries = "json-c libmnl libnftnl libseccomp";
      packages = [
        pkgs.json_c
        pkgs.libmnl
        pkgs.libnftnl
        pkgs.libseccomp
      ];
    };

    # Static, because it runs in root filesystems that know nothing of it.
    cloister-guest = program {
      name = "cloister-guest";
      files = [
        ../common
        ../guest
      ];
      libraries = "json-c";
      packages = [
        json_c_static
        pkgs.glibc.static
      ];
    };

    # gVisor's package wraps the program in a script, for a command that is not used here. In
    # the sandbox's private root there is no shell for it.
    runsc = pkgs.runCommand "cloister-runsc" { inherit (pkgs.gvisor) version meta; } ''
      install -D -m 0755 ${pkgs.gvisor}/bin/.runsc-wrapped "$out/bin/runsc" ||
        install -D -m 0755 ${pkgs.gvisor}/bin/runsc "$out/bin/runsc"
      [ "$(head -c 4 "$out/bin/runsc" | tail -c 3)" = ELF ] || {
        echo "gVisor's package holds no program where one was expected" >&2
        exit 1
      }
    '';

    rootfs = import ./rootfs.nix { inherit pkgs lib; };
    # The same with Nix for the tenants.
    rootfs-nix = import ./rootfs.nix {
      inherit pkgs lib;
      withNix = true;
    };

    # What the module has done as root: the scripts beside this file, with what they call.
    prepare = script "prepare-tenants" [
      pkgs.coreutils
      pkgs.e2fsprogs
      pkgs.findutils
      pkgs.gawk
      pkgs.linuxquota
      pkgs.util-linux
    ];
    upgrade-database = script "upgrade-database" [
      pkgs.coreutils
      pkgs.util-linux
    ];

    # The demonstration of scripts/demo with the programs of this flake.
    demo = pkgs.writeShellApplication {
      name = "cloister-demo";
      runtimeInputs = [
        pkgs.coreutils
        pkgs.curl
        pkgs.iproute2
        pkgs.nftables
        pkgs.procps
        pkgs.python3
        pkgs.util-linux
      ];
      text = ''
        [ "$(id -u)" -eq 0 ] || {
          echo "demo: needs root, for namespaces that play this host and the internet" >&2
          exit 1
        }
        getent passwd cloister >/dev/null || {
          echo "demo: needs the service's user: useradd --system --user-group cloister" >&2
          exit 1
        }
        export CLOISTER_PROGRAMS=${programs}/bin CLOISTER_ROOTFS=${rootfs}
        export CLOISTER_OPTIONS="--runsc ${runsc}/bin/runsc --slirp4netns ${pkgs.slirp4netns}/bin/slirp4netns --postgres-bin ${pkgs.postgresql_17}/bin"
        exec ${scripts}/demo ${programs}/bin
      '';
    };
  };
in
all
