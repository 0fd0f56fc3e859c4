# The root filesystem of the sandboxes: a directory with all it needs copied into it, because
# a sandbox sees nothing else of the store.
#
# It is read-only in the sandbox. The runner mounts on what is made here as an empty
# directory; the home directory and Nix's own store, when there is one, are in /state.
{
  pkgs,
  lib,
  withNix ? false,
  packages ? [ ],
}:

let
  tools = pkgs.buildEnv {
    name = "cloister-rootfs-tools";
    paths = [
      pkgs.bashInteractive
      pkgs.coreutils
      pkgs.curl
      pkgs.diffutils
      pkgs.findutils
      pkgs.gawk
      pkgs.gcc
      pkgs.git
      pkgs.gnugrep
      pkgs.gnumake
      pkgs.gnused
      pkgs.gnutar
      pkgs.gzip
      pkgs.iproute2
      pkgs.procps
      pkgs.python3
      pkgs.ripgrep
      pkgs.util-linux
      pkgs.which
    ]
    ++ lib.optional withNix pkgs.nix
    ++ packages;
    pathsToLink = [
      "/bin"
      "/share/git-core"
    ];
  };

  closure = pkgs.closureInfo {
    rootPaths = [
      tools
      pkgs.cacert
    ];
  };

  # A store in the tenant's own state, where everything is named by where it lies: with one
  # that is laid over /nix/store, Nix needs namespaces for each build and each program, and
  # nobody in a sandbox makes any (guest/seal.c). So caches, whose paths are in /nix/store, are
  # of no use. No builder users: one user is all that exists, and the sandbox is the sandbox.
  nixConf = pkgs.writeText "nix.conf" ''
    store = local?store=/state/nix/store&state=/state/nix/var/nix&log=/state/nix/var/log/nix
    substituters =
    sandbox = false
    build-users-group =
    max-jobs = 2
    experimental-features = nix-command flakes
  '';
  nixFiles = ''
    install -D -m 0444 ${nixConf} "$out/etc/nix/nix.conf"
    # Where Nix keeps root's profiles.
    ln -s /state/nix/var "$out/nix/var"
  '';

  passwd = pkgs.writeText "passwd" ''
    root:x:0:0:root:/state/home:/bin/bash
    nobody:x:65534:65534:nobody:/var/empty:/bin/false
  '';
  group = pkgs.writeText "group" ''
    root:x:0:
    nogroup:x:65534:
  '';

  passthru = {
    inherit
      tools
      withNix
      nixConf
      nixFiles
      ;
  };
in
pkgs.runCommand "cloister-rootfs" { inherit passthru; } ''
  mkdir -p "$out"/{cloister,dev,etc,nix/store,proc,root,run,state,sys,tmp,usr,var/tmp,workspace}
  xargs cp -a -t "$out/nix/store" <${closure}/store-paths

  ln -s ${tools}/bin "$out/bin"
  ln -s ${tools}/bin "$out/usr/bin"
  ln -s ${tools}/bin "$out/sbin"
  mkdir -p "$out/etc/ssl/certs"
  ln -s ${pkgs.cacert}/etc/ssl/certs/ca-bundle.crt "$out/etc/ssl/certs/ca-bundle.crt"
  ln -s ${pkgs.cacert}/etc/ssl/certs/ca-bundle.crt "$out/etc/ssl/certs/ca-certificates.crt"
  install -m 0444 ${passwd} "$out/etc/passwd"
  install -m 0444 ${group} "$out/etc/group"
  echo "127.0.0.1 localhost" >"$out/etc/hosts"
  echo "hosts: files dns" >"$out/etc/nsswitch.conf"
  printf 'ID=cloister\nNAME="Cloister sandbox"\n' >"$out/etc/os-release"

  # The runner mounts the tenant's resolvers and the guest on these two.
  : >"$out/etc/resolv.conf"
  install -m 0555 /dev/null "$out/cloister/guest"
  ${lib.optionalString withNix nixFiles}
''
