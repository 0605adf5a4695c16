#!/bin/bash
# Check the Nix recipe with nixpkgs.nix: nix.sh PYTHON DIST WORK VERSION DEPENDENCIES. WORK is an empty directory.
#
# The recipe is evaluated for each platform, and its postInstall is executed on the installed wheel. PYTHON
# has the dependencies of acpterm: DEPENDENCIES, and others that depend on the platform.
set -euo pipefail
shopt -s inherit_errexit
python=$1 dist=$2 work=$3 version=$4 dependencies=$5
here=$(cd "$(dirname "$0")" && pwd)
# Nix writes the files that it fetches to its store. /nix may not exist, or belong to another user.
export NIX_STORE_DIR="$work/store" NIX_STATE_DIR="$work/var" NIX_LOG_DIR="$work/log" NIX_CONF_DIR="$work/etc"
export NIX_CONFIG="build-users-group =" XDG_CACHE_HOME="$work/cache"

read -r interpreter site modules < <("$python" -c '
import os, sys, sysconfig
print(sys._base_executable, "lib/python%d.%d/site-packages" % sys.version_info[:2], sysconfig.get_path("purelib"))')

fail() { echo "FAILED: nix: $*"; exit 1; }
# evaluate SYSTEM EXPRESSION: print a value of the package, a string, for a platform.
evaluate() {
  local json
  json=$(nix-instantiate --eval --strict --json --expr "
    let
      pkgs = import $here/nixpkgs.nix {
        system = \"$1\"; dist = \"$dist\"; python = \"$interpreter\"; sitePackages = \"$site\"; modules = \"$modules\";
      };
      package = import $dist/nix/default.nix { inherit pkgs; };
      names = map (dependency: dependency.pname) package.dependencies;
      pyghostty = builtins.elemAt package.dependencies (builtins.length names - 1);
    in $2")
  "$python" -c 'import json, sys; print(json.loads(sys.argv[1]))' "$json"
}

for recipe in "$here"/../nix/*.nix "$dist"/nix/*.nix; do
  nix-instantiate --parse "$recipe" >/dev/null
done
for system in x86_64-linux aarch64-linux x86_64-darwin aarch64-darwin riscv64-linux; do
  # With builtins.deepSeq, all attributes are evaluated, and the sources fetched.
  found=$(evaluate $system 'builtins.deepSeq package "${package.version}: ${toString names}"')
  expected="$version: $dependencies"
  case $system in *-darwin) expected="$expected psutil" ;; esac
  case $system in riscv64-*) ;; *) expected="$expected pyghostty" ;; esac
  [ "$found" = "$expected" ] || fail "$system: $found, not $expected"
  case $system in riscv64-*) continue ;; esac
  name=$(evaluate $system pyghostty.src.name)
  env name="$name" out="$work/$name" bash -c "$(evaluate $system pyghostty.src.script)"
  "$python" -m zipfile --test "$work/$name" >/dev/null
done
echo "nix: evaluates for five platforms on an imitation of nixpkgs; Nix verified the hashes"

out=$work/out
"$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --ignore-installed \
  --prefix="$out" "$dist/acpterm-$version-py3-none-any.whl"
mkdir "$work/source"
tar -xf "$dist/acpterm-$version.tar.gz" -C "$work/source" --strip-components=1
cat >"$work/functions" <<'FUNCTIONS'
installShellCompletion() {
  [ "$*" = "--bash $2 --fish $4 --zsh $6" ]
  install -D -m 644 "$2" "$out/share/bash-completion/completions/${2##*/}"
  install -D -m 644 "$4" "$out/share/fish/vendor_completions.d/${4##*/}"
  install -D -m 644 "$6" "$out/share/zsh/site-functions/${6##*/}"
}
substituteInPlace() {
  [ "$2" = --replace-fail ]
  grep -qF -e "$3" "$1"
  sed -i "s|$3|$4|" "$1"
}
FUNCTIONS
(cd "$work/source" && out="$out" bash -euc ". '$work/functions'; $(evaluate x86_64-linux package.postInstall)")
(cd "$out" && find bin lib/systemd libexec share ! -type d ! -name 'acpterm-*.1' | sort | sed 's/^/  /')
! grep -rn 'local/bin\|/usr/bin' --include='*.service' "$out/lib/systemd" | grep -v '#' || fail "a unit has another path"

export ACPTERM_SOCKET="$work/run/agent.sock"
acpterm=$out/bin/acpterm
trap '"$acpterm" shutdown >/dev/null 2>&1 || true' EXIT
"$acpterm" --version | grep -qF " $version " || fail "the version is not $version"
[ "$("$acpterm" run -- echo hello </dev/null)" = hello ] || fail "no output"
"$acpterm" run --detached --name shell -- sh -c "printf 'on a screen'" >/dev/null
"$acpterm" wait shell
"$acpterm" screen shell | grep -qF "on a screen" || fail "no screen"
# The exit status is 3, because the decision is to ask.
judged=$("$acpterm" policy check 'rm -r x') || true
grep -Eqx 'level +dangerous' <<<"$judged" || fail "a command is not judged"
"$acpterm" provider list | grep -q '^. local ' || fail "no provider"
"$acpterm" audit | grep -q ' started ' || fail "no audit log"
echo "nix: postInstall results in an acpterm that runs a terminal"
