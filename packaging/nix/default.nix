# acpterm alone: nix-build default.nix. In a set of packages, use package.nix with callPackage.
{
  pkgs ? import <nixpkgs> { },
}:
pkgs.callPackage ./package.nix { }
