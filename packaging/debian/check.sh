#!/bin/sh
# Build the Debian packages of this commit into dist/, and check them: installation, upgrade, removal.
#
# check.sh PYTHON: the upgrade is from the previous release: the last tag or, if that has the same version or
# there is none, the same files under the number 0.0.9. Needs root, mmdebstrap and systemd-nspawn.
set -eu
python=$1
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

# version CHECKOUT
version() { sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$1/acpterm/__init__.py"; }

git clone --quiet "$top" "$work/current"
git clone --quiet "$top" "$work/previous"
cd "$work/previous"
if tag=$(git describe --tags --abbrev=0 --match='v*' HEAD^ 2>/dev/null); then
  git checkout --quiet "$tag"
fi
# Until a release sets the version, this commit has the version of the last release.
if [ "$(version .)" = "$(version "$work/current")" ]; then
  sed -i 's/^__version__ = ".*"/__version__ = "0.0.9"/' acpterm/__init__.py
  git -c user.name=check -c user.email=check@localhost commit --quiet --all --message="Version 0.0.9"
fi
for checkout in current previous; do
  sh "$work/$checkout/packaging/dist.sh" "$python" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
done
sh "$here/build.sh" "$python" "$work/debs" "$work/previous" "$work/current"
current=$(version "$work/current")
mkdir -p "$top/dist"
cp "$work"/debs/*_"$current"-1_*.deb "$top/dist/"
sh "$here/container.sh" "$work/debs" "$(version "$work/previous")" "$current"
