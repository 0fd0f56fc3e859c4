# What "nix flake check" proves. The tests that need root and a machine of their own are in
# "make check" and "make check-vm".
{
  pkgs,
  lib,
  ours,
  module,
}:

let
  sources =
    more:
    lib.fileset.toSource {
      root = ../.;
      fileset = lib.fileset.unions (
        [
          ../Makefile
          ../common
          ../daemon
          ../guest
          ../runner
          ../sql
          ../tenants.example.json
        ]
        ++ more
      );
    };
  libraries =
    ours.cloisterd.buildInputs ++ ours.cloister-runner.buildInputs ++ ours.cloister-guest.buildInputs;
in
{
  # The unit tests that ask nothing of the machine: no user, no namespace, no listener.
  unit = pkgs.stdenv.mkDerivation {
    name = "cloister-unit-tests";
    version = "0";
    src = sources [ ];
    nativeBuildInputs = [ pkgs.pkg-config ];
    buildInputs = [ pkgs.cmocka ] ++ libraries;
    enableParallelBuilding = true;
    hardeningDisable = [ "all" ];
    makeFlags = [
      "BUILD=build"
      "PKG=pkg-config"
      "CFLAGS=-Wno-error"
    ];
    buildFlags = [ "tests" ];
    doCheck = true;
    checkPhase = ''
      for source in common/test_*.c guest/test_channel.c guest/test_file.c daemon/test_options.c \
        daemon/{event,model}/test_*.c runner/test_{args,bundle,deny,egress,runsc}.c; do
        "build/release/''${source%.c}"
      done
    '';
    installPhase = ''
      touch "$out"
    '';
  };

  # The tests of the module, with the lib of nixpkgs in the place of its stand-in. Three are
  # for elsewhere: two ask the daemon, which looks who owns "/", and nobody of a build's does;
  # one is what runs this.
  module =
    pkgs.runCommand "cloister-module-tests"
      {
        nativeBuildInputs = [
          pkgs.nix
          pkgs.pkg-config
          (pkgs.python3.withPackages (python: [ python.pytest ]))
        ];
        buildInputs = libraries;
        src = sources [
          ../docs
          ../flake.lock
          ../flake.nix
          ../integration
          ../nix
          ../scripts
        ];
        CLOISTER_NIXPKGS_LIB = "${pkgs.path}/lib";
        CLOISTER_BUILD = "${ours.cloisterd}/bin";
      }
      ''
        export HOME=$PWD NIX_STATE_DIR=$PWD/nix
        cd "$src"
        pytest -p no:cacheprovider -k "not accepts_the_registry and not daemon_judges and not nix_itself" integration/test_nix.py integration/test_nix_refused.py
        touch "$out"
      '';

  vm = import ./vm-test.nix {
    inherit
      pkgs
      lib
      ours
      module
      ;
  };
}
