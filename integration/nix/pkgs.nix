# A stand-in for the packages that Cloister's Nix files use: derivations with nothing behind
# them, made by the real function, so that what is wrong with an argument is an error and a
# changed input changes a path. A package that is not here is an error too.
{ lib }:

let
  system = "x86_64-linux";

  build =
    args:
    derivation (
      {
        inherit system;
        builder = "/bin/sh";
      }
      // removeAttrs args [
        "meta"
        "passthru"
      ]
    )
    // (args.passthru or { })
    // {
      inherit (args) name;
      meta = args.meta or { };
    };

  package =
    name: version:
    build { inherit name; }
    // {
      inherit version;
      overrideAttrs = change: build ({ inherit name; } // change { inherit name; }) // { inherit version; };
    };

  plain =
    names:
    builtins.listToAttrs (
      map (name: {
        inherit name;
        value = package name "1.0";
      }) names
    );

  # What a call may have for arguments.
  only =
    function: known: args:
    let
      unknown = builtins.attrNames (removeAttrs args known);
    in
    if unknown == [ ] then args else throw "${function}: unknown arguments ${builtins.toJSON unknown}";
in
plain [
  "bashInteractive"
  "cacert"
  "clang-tools"
  "cmocka"
  "coreutils"
  "curl"
  "diffutils"
  "e2fsprogs"
  "findutils"
  "gawk"
  "gcc"
  "git"
  "gnugrep"
  "gnumake"
  "gnused"
  "gnutar"
  "gvisor"
  "gzip"
  "iproute2"
  "json_c"
  "libmicrohttpd"
  "libmnl"
  "libnftnl"
  "libpq"
  "libseccomp"
  "libsodium"
  "linuxquota"
  "mypy"
  "nftables"
  "nix"
  "openssl"
  "pkg-config"
  "procps"
  "ripgrep"
  "shellcheck"
  "slirp4netns"
  "util-linux"
  "which"
]
// {
  inherit lib;
  path = "/nix/store/nixpkgs";
  stdenv = rec {
    mkDerivation =
      args:
      let
        known = only "mkDerivation" [
          "pname"
          "name"
          "version"
          "src"
          "nativeBuildInputs"
          "buildInputs"
          "strictDeps"
          "enableParallelBuilding"
          "hardeningDisable"
          "makeFlags"
          "buildFlags"
          "postPatch"
          "buildPhase"
          "installPhase"
          "doCheck"
          "checkPhase"
          "meta"
          "passthru"
        ] args;
      in
      build (known // { name = args.name or "${args.pname}-${args.version}"; })
      // {
        inherit (args) version;
        overrideAttrs = change: mkDerivation (args // change args);
        # For tests: what it was made from.
        inherit args;
      };
  };
  glibc = package "glibc" "2.40" // {
    static = package "glibc-static" "2.40";
  };
  postgresql_15 = package "postgresql-15" "15.14";
  postgresql_17 = package "postgresql-17" "17.6";
  postgresql_18 = package "postgresql-18" "18.1";

  writeText = name: text: build { inherit name text; };
  runCommand =
    name: environment: script:
    build (environment // { inherit name script; });
  writeShellApplication =
    args:
    build {
      inherit
        (only "writeShellApplication" [
          "name"
          "runtimeInputs"
          "text"
        ] args)
        name
        runtimeInputs
        text
        ;
      meta.mainProgram = args.name;
    };
  buildEnv =
    args:
    build (
      only "buildEnv" [
        "name"
        "paths"
        "pathsToLink"
      ] args
    );
  closureInfo = args: build ({ name = "closure-info"; } // only "closureInfo" [ "rootPaths" ] args);
  mkShell =
    args:
    build (
      { name = "shell"; }
      // only "mkShell" [
        "inputsFrom"
        "packages"
      ] args
    );
  python3 = package "python3" "3.13.0" // {
    withPackages = choose: build {
      name = "python3-with-packages";
      packages = choose (builtins.listToAttrs (
        map (name: { inherit name; value = package name "8.0"; }) [
          "prometheus-client"
          "pytest"
          "pytest-xdist"
        ]
      ));
    };
  };
  testers.runNixOSTest =
    test:
    build {
      name = "vm-test-${test.name}";
      script = test.testScript;
    }
    // {
      inherit test;
    };
}
