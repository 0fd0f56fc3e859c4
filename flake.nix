{
  description = "Cloister: sandboxes for agents behind an HTTP API";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-25.11";

  outputs =
    { self, nixpkgs }:
    let
      # Filters of system calls and the compiler's protections are written for this one.
      system = "x86_64-linux";
      pkgs = nixpkgs.legacyPackages.${system};
      inherit (nixpkgs) lib;
      ours = import ./nix/packages.nix { inherit pkgs lib; };
    in
    {
      packages.${system} = {
        inherit (ours)
          cloisterd
          cloister-runner
          cloister-guest
          runsc
          rootfs
          rootfs-nix
          prepare
          upgrade-database
          ;
        default = ours.cloisterd;
      };

      overlays.default = final: _: {
        cloister = import ./nix/packages.nix {
          pkgs = final;
          inherit (final) lib;
        };
      };

      nixosModules.default = {
        imports = [ ./nix/module.nix ];
      };

      apps.${system}.demo = {
        type = "app";
        program = "${ours.demo}/bin/cloister-demo";
        meta.description = "Plays one story on a real cloisterd, as root";
      };

      devShells.${system}.default = import ./nix/shell.nix { inherit pkgs ours; };

      checks.${system} = import ./nix/checks.nix {
        inherit pkgs lib ours;
        module = self.nixosModules.default;
      };
    };
}
