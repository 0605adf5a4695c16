#!/bin/sh
# Check Debian packages in a booted, otherwise empty Debian bookworm. The checks are in `check_inside.sh`.
#
# container.sh DEBS PREVIOUS CURRENT: the directory DEBS has the packages of both versions.
set -eu
debs=$1 previous=$2 current=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
container=
clean_up() {
  [ -z "$container" ] || kill "$container" 2>/dev/null || true
  [ -z "$container" ] || wait "$container" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

packages=$(sh "$here/../apt_sources.sh")
mmdebstrap --quiet --mode=root --variant=apt --skip=cleanup/apt/lists \
  --include=bubblewrap,systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,procps \
  bookworm "$work/root" "$packages"
mkdir "$work/root/check"
cp "$debs"/*.deb "$here/check_inside.sh" "$here/../../docs/examples/agent.py" "$work/root/check/"
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
  sh /check/check_inside.sh "$previous" "$current"
