#!/bin/sh
# Check the recipes in dist/ for Homebrew, Arch Linux and Nix, as far as possible without them.
#
# check_recipes.sh PYTHON: PYTHON has acpterm's dependencies and the extra "package" of pyproject.toml.
# dist/ has what dist.sh, dependencies.py and recipes.py write. PYTHON313 is a Python 3.13, without which
# the formula is not executed. Builds have no network. The status is 0 if all checks passed.
set -eu
python=$1
here=$(cd "$(dirname "$0")" && pwd)
dist=$(cd "$here/.." && pwd)/dist
case $python in /*) ;; */*) python=$PWD/$python ;; esac

missing=
for tool in bsdtar:libarchive-tools fakeroot:fakeroot makepkg:makepkg nix-instantiate:nix-bin ruby:ruby \
  unshare:util-linux zstd:zstd; do
  command -v "${tool%:*}" >/dev/null || missing="$missing ${tool#*:}"
done
[ -z "$missing" ] || { echo "missing programs; Debian packages:$missing"; exit 1; }
"$python" -c 'import build, hatchling, installer' || exit 1

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
mkdir "$work/bin" "$work/homebrew" "$work/aur" "$work/nix" "$work/home"
if python313=$("${PYTHON313:-python3.13}" -c 'import sys; print(sys.executable)' 2>/dev/null); then
  ln -s "$python313" "$work/bin/python3.13"
elif [ -n "${ACPTERM_NO_SKIPS-}" ]; then
  echo "no Python 3.13: set PYTHON313" >&2
  exit 1
fi
# A script, because Python run by a link would not use the packages of its virtual environment.
printf '#!/bin/sh\nexec "%s" "$@"\n' "$python" >"$work/bin/python"
chmod +x "$work/bin/python"
version=$(cd "$here/.." && "$python" -m hatchling version)
# The names of the dependencies that all platforms have.
dependencies=$("$python" - "$here/../pyproject.toml" <<'VALUES'
import re, sys, tomllib
with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)["project"]
names = [re.match(r"[\w-]+", name)[0] for name in project["dependencies"] if ";" not in name]
print(*names)
VALUES
)

# isolated COMMAND...: execute it without a network, not as root (which makepkg refuses), and without the
# caller's configuration of pip, Nix and acpterm.
isolated() {
  env --ignore-environment PATH="$work/bin:$PATH" HOME="$work/home" LC_ALL=C.UTF-8 TMPDIR="${TMPDIR:-/tmp}" \
    unshare --user --map-user=65534 --map-group=65534 --net -- "$@"
}
isolated ruby -c "$dist/homebrew/acpterm.rb" >/dev/null
isolated ruby "$here/check_recipes/homebrew.rb" "$dist/homebrew/acpterm.rb" "$dist" "$work/homebrew" "$version"
isolated bash "$here/check_recipes/aur.sh" "$dist" "$work/aur" "$version" "$dependencies"
isolated bash "$here/check_recipes/nix.sh" "$python" "$dist" "$work/nix" "$version" "$dependencies"
echo "The recipes are untried with Homebrew, on Arch Linux and with nixpkgs."
