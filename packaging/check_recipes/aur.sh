#!/bin/bash
# Build the Arch Linux package with makepkg: aur.sh DIST WORK VERSION DEPENDENCIES. WORK is an empty directory.
#
# `python` on the PATH has the packages that the build needs. DEPENDENCIES are the names of acpterm's
# dependencies, without pyghostty.
set -euo pipefail
dist=$1 work=$2 version=$3 dependencies=$4

fail() { echo "FAILED: aur: $*"; exit 1; }

cd "$dist/aur"
bash -n PKGBUILD acpterm.install
[ "$(makepkg --printsrcinfo)" = "$(cat .SRCINFO)" ] || fail ".SRCINFO is not that of PKGBUILD"
for dependency in $dependencies; do
  # The package contains tree-sitter-bash instead of depending on it.
  [ "$dependency" != tree-sitter-bash ] || continue
  grep -qx "	depends = python-$dependency" .SRCINFO || fail "does not depend on $dependency"
done

# makepkg does not download files that are in SRCDEST already.
cp PKGBUILD acpterm.install "$work"
cd "$work"
SRCDEST=$dist PKGEXT=.pkg.tar.zst makepkg --nodeps --noprogressbar --nocolor >log 2>&1 || { cat log; fail "makepkg fails"; }
grep -F ... log
package=$(echo acpterm-"$version"-1-*.pkg.tar.zst)
bsdtar -tf "$package" | grep -v '/$' >files
grep -v -e /acpterm/ files | sed 's/^/  /'
for file in .INSTALL usr/bin/acpterm usr/lib/systemd/{user,system}/acpterm{,@}.{service,socket} \
  usr/share/bash-completion/completions/acpterm usr/share/zsh/site-functions/_acpterm \
  usr/share/fish/vendor_completions.d/acpterm.fish usr/share/licenses/acpterm/LICENSE \
  usr/share/man/man1/acpterm{,-ls}.1.gz; do
  case $file in */user/acpterm@.* | */system/acpterm.*) continue ;; esac
  grep -qx "$file" files || fail "$file is not in the package"
done
for file in acpterm/cli/main.py pyghostty/_lib/libghostty-vt.so tree_sitter_bash/_binding.abi3.so; do
  grep -q "^usr/lib/python3[.0-9]*/site-packages/$file$" files || fail "$file is not in the package"
done
for unit in user/acpterm system/acpterm@; do
  bsdtar -xOf "$package" "usr/lib/systemd/$unit.service" | grep -q '^ExecStart=/usr/bin/acpterm ' \
    || fail "$unit.service has another path"
done
mkdir root
bsdtar -xf "$package" -C root
export PYTHONPATH
PYTHONPATH=$(echo "$work"/root/usr/lib/python3*/site-packages)
python -c "import acpterm, tree_sitter_bash; assert all(m.__file__.startswith('$work') for m in (acpterm, tree_sitter_bash))"
[[ $(python -m acpterm policy check 'rm -r x' || true) =~ ^level\ +dangerous ]] || fail "a command is not judged"
python -m acpterm provider list | grep -q '^. local ' || fail "no provider"
echo "aur: makepkg verifies the hashes and builds $package"
