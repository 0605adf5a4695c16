# Untried with nixpkgs. packaging/recipes.py replaces the placeholders; packaging/check_recipes.sh
# evaluates the expression and executes postInstall.
#
# The build sandbox cannot read file: URLs. For these: callPackage ./package.nix { fetchurl = builtins.fetchurl; }
{
  lib,
  stdenv,
  autoPatchelfHook,
  fetchurl,
  installShellFiles,
  python3Packages,
  runCommand,
  runtimeShell,
}:

let
  version = "@VERSION@";
  system = stdenv.hostPlatform.system;

  # The terminal emulator, which nixpkgs does not have. acpterm works without it on other platforms.
  platforms = {
    x86_64-linux = "manylinux_2_27_x86_64.manylinux_2_28_x86_64";
    aarch64-linux = "manylinux_2_27_aarch64.manylinux_2_28_aarch64";
    x86_64-darwin = "macosx_13_0_x86_64";
    aarch64-darwin = "macosx_13_0_arm64";
  };
  archive = fetchurl {
    url = "@RELEASE_URL@/acpterm-${version}-dependencies.tar";
    sha256 = "@DEPENDENCIES_SHA256@";
  };
  pyghostty = python3Packages.buildPythonPackage rec {
    pname = "pyghostty";
    version = "@PYGHOSTTY_VERSION@";
    format = "wheel";
    src = runCommand "pyghostty-${version}-py3-none-${platforms.${system}}.whl" { } ''
      tar --extract --to-stdout --file=${archive} acpterm-@VERSION@-dependencies/$name >$out
    '';
    nativeBuildInputs = lib.optionals stdenv.hostPlatform.isLinux [ autoPatchelfHook ];
    dependencies = [ python3Packages.cffi ];
    pythonImportsCheck = [ "pyghostty" ];
    meta = {
      description = "Python bindings for libghostty";
      homepage = "https://github.com/AnswerDotAI/pyghostty";
      license = with lib.licenses; [
        asl20
        mit
      ];
      sourceProvenance = [ lib.sourceTypes.binaryNativeCode ];
      platforms = builtins.attrNames platforms;
    };
  };
in
python3Packages.buildPythonApplication rec {
  pname = "acpterm";
  inherit version;
  pyproject = true;

  src = fetchurl {
    url = "@RELEASE_URL@/acpterm-${version}.tar.gz";
    sha256 = "@SHA256@";
  };

  build-system = [ python3Packages.hatchling ];

  dependencies =
    (with python3Packages; [
      anyio
      click
      msgspec
      outcome
      platformdirs
      ptyprocess
      regex
      structlog
      tomlkit
      tree-sitter
      tree-sitter-grammars.tree-sitter-bash
      trio
      wcwidth
    ])
    ++ lib.optionals (!stdenv.hostPlatform.isLinux) [ python3Packages.psutil ]
    ++ lib.optionals (platforms ? ${system}) [ pyghostty ];

  nativeBuildInputs = [ installShellFiles ];

  # acpterm executes its Python again for the daemon, which would not find the packages: nixpkgs' wrapper
  # tells only the first process where they are. PYTHONPATH would reach the programs in the terminals. So
  # Python runs from a virtual environment, whose .pth file has the directories of the packages.
  dontWrapPythonPrograms = true;

  postInstall = ''
    environment=$out/libexec/acpterm
    packages=$environment/${python3Packages.python.sitePackages}
    mkdir -p $environment/bin $packages
    ln -s ${python3Packages.python.interpreter} $environment/bin/python3
    printf 'home = %s\ninclude-system-site-packages = false\n' \
      ${builtins.dirOf python3Packages.python.interpreter} >$environment/pyvenv.cfg
    echo $out/${python3Packages.python.sitePackages}:${python3Packages.makePythonPath dependencies} \
      | tr : '\n' >$packages/acpterm.pth
    printf '#!%s\nexec %s -P -m acpterm "$@"\n' ${runtimeShell} $environment/bin/python3 >$out/bin/acpterm

    # Units of packages belong in lib. Manual pages and completions of the wheel are in these
    # directories of the Python package; installShellCompletion gives each its name for nixpkgs.
    rm -r $out/share/systemd $out/share/bash-completion $out/share/zsh $out/share/fish
    installShellCompletion --bash docs/completions/acpterm.bash --fish docs/completions/acpterm.fish \
      --zsh docs/completions/_acpterm
    install -D -m 644 -t $out/lib/systemd/user systemd/acpterm.service systemd/acpterm.socket
    install -D -m 644 -t $out/lib/systemd/system systemd/acpterm@.service systemd/acpterm@.socket
    substituteInPlace $out/lib/systemd/user/acpterm.service --replace-fail %h/.local/bin/acpterm $out/bin/acpterm
    substituteInPlace $out/lib/systemd/system/acpterm@.service --replace-fail /usr/bin/acpterm $out/bin/acpterm
  '';

  # The tests need packages that nixpkgs does not have.
  doCheck = false;
  pythonImportsCheck = [ "acpterm.cli.main" ];

  meta = {
    description = "Real terminals for AI agents that speak the Agent Client Protocol";
    homepage = "https://agentclientprotocol.com/protocol/terminals";
    license = lib.licenses.mit;
    maintainers = [ ];
    mainProgram = "acpterm";
    platforms = lib.platforms.linux ++ lib.platforms.darwin;
  };
}
