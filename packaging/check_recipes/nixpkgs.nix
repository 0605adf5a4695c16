# A minimal imitation of nixpkgs, to evaluate the Nix recipe. A derivation is the set of its arguments.
#
# `system` is the platform, `dist` the directory with the files of the release, `python` an interpreter,
# and `modules` a directory with the dependencies of acpterm for it.
{
  system,
  dist,
  python,
  sitePackages,
  modules,
}:
let
  isLinux = builtins.match ".*-linux" system != null;
  pkgs = {
    callPackage =
      path: args:
      let
        package = import path;
        names = builtins.functionArgs package;
      in
      package (builtins.intersectAttrs names pkgs // args);
    lib = {
      optionals = condition: list: if condition then list else [ ];
      licenses = {
        asl20 = "Apache-2.0";
        mit = "MIT";
      };
      sourceTypes.binaryNativeCode = "binaryNativeCode";
      platforms = {
        linux = [ "x86_64-linux" ];
        darwin = [ "aarch64-darwin" ];
      };
    };
    stdenv.hostPlatform = { inherit system isLinux; };
    autoPatchelfHook = "autoPatchelfHook";
    installShellFiles = "installShellFiles";
    runtimeShell = "/bin/sh";
    # Nix verifies the hash of the file.
    fetchurl =
      { url, sha256 }:
      builtins.fetchurl {
        inherit sha256;
        url = "file://${dist}/${baseNameOf url}";
      };
    runCommand = name: env: script: { inherit name script; };
    python3Packages = {
      buildPythonPackage = args: args;
      buildPythonApplication = args: args;
      makePythonPath = dependencies: modules;
      tree-sitter-grammars.tree-sitter-bash.pname = "tree-sitter-bash";
      python = {
        interpreter = python;
        inherit sitePackages;
      };
    }
    // builtins.listToAttrs (
      map
        (name: {
          inherit name;
          value.pname = name;
        })
        [
          "anyio"
          "cffi"
          "click"
          "hatchling"
          "msgspec"
          "outcome"
          "platformdirs"
          "psutil"
          "ptyprocess"
          "regex"
          "structlog"
          "tomlkit"
          "tree-sitter"
          "trio"
          "wcwidth"
        ]
    );
  };
in
pkgs
