# What it takes to work on Cloister: its libraries, its tests, its linters.
{ pkgs, ours }:

pkgs.mkShell {
  inputsFrom = [
    ours.cloisterd
    ours.cloister-runner
    ours.cloister-guest
  ];
  packages = [
    pkgs.clang-tools
    pkgs.cmocka
    pkgs.iproute2
    pkgs.mypy
    pkgs.nftables
    pkgs.nix
    pkgs.postgresql_17
    (pkgs.python3.withPackages (python: [
      python.prometheus-client
      python.pytest
      python.pytest-xdist
    ]))
    pkgs.shellcheck
    pkgs.slirp4netns
    ours.runsc
  ];
}
