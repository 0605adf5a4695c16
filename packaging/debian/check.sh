#!/bin/sh
# Install, upgrade and remove the Debian packages in a booted, otherwise empty Debian bookworm.
#
# check.sh PYTHON: builds the packages of this checkout and of the previous release (the last tag; without
# a tag, this version under the number 0.0.9). Needs root, mmdebstrap and systemd-nspawn. `check_inside.sh`
# runs in the container, and says what it checks.
set -eu
python=$1
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
container=
clean_up() {
  [ -z "$container" ] || kill "$container" 2>/dev/null || true
  [ -z "$container" ] || wait "$container" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

git clone --quiet "$top" "$work/current"
git clone --quiet "$top" "$work/previous"
cd "$work/previous"
if tag=$(git describe --tags --abbrev=0 --match='v*' HEAD^ 2>/dev/null); then
  git checkout --quiet "$tag"
else
  sed -i 's/^version = ".*"/version = "0.0.9"/' pyproject.toml
  sed -i 's/^__version__ = ".*"/__version__ = "0.0.9"/' acpterm/__init__.py
  git -c user.name=check -c user.email=check@localhost commit --quiet --all --message="Version 0.0.9"
fi
for checkout in current previous; do
  sh "$work/$checkout/packaging/dist.sh" "$python" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
done
sh "$here/build.sh" "$python" "$work/debs" "$work/previous" "$work/current"
mkdir -p "$top/dist"
version=$(git show HEAD:acpterm/__init__.py | sed -n 's/^__version__ = "\(.*\)"$/\1/p')
current=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$work/current/acpterm/__init__.py")
cp "$work"/debs/*_"$current"-1_*.deb "$top/dist/"

packages=$(ls /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1)
mmdebstrap --quiet --mode=root --variant=apt --skip=cleanup/apt/lists \
  --include=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd \
  bookworm "$work/root" "$packages"
mkdir "$work/root/check"
cp "$work"/debs/*.deb "$here/check_inside.sh" "$work/root/check/"
cp /etc/resolv.conf "$work/root/etc/resolv.conf"

SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 systemd-nspawn --quiet --boot --directory="$work/root" \
  --register=no --keep-unit --resolv-conf=off --console=read-only >"$work/console" 2>&1 </dev/null &
container=$!
# inside COMMAND...: execute it in the container.
inside() { nsenter --target "$init" --all -- "$@"; }
deadline=$(($(date +%s) + 60))
until init=$(pgrep --parent "$container") && inside systemctl is-active --quiet multi-user.target 2>/dev/null; do
  [ "$(date +%s)" -lt "$deadline" ] || { cat "$work/console"; echo "the container does not boot"; exit 1; }
  sleep 0.2
done
inside systemd-run --quiet --wait --pipe --collect --property=RuntimeMaxSec=300 \
  sh /check/check_inside.sh "$version" "$current"
