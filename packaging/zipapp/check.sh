#!/bin/sh
# Try acpterm.pyz: check.sh ZIPAPP PYTHON...
#
# With each PYTHON, eight first runs at once, and in a root of Debian bookworm that has only Python, as an
# unprivileged user. Needs root and mmdebstrap.
set -eu
zipapp=$(realpath "$1")
shift
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 1' INT TERM HUP
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

for python; do
  "$python" --version
  sh "$here/../try.sh" "$python" "$zipapp"
done

echo "eight first runs at once"
mkdir "$work/cache"
started=
for number in 1 2 3 4 5 6 7 8; do
  XDG_CACHE_HOME="$work/cache" "$1" "$zipapp" --version >"$work/run-$number" 2>&1 &
  started="$started $!"
done
for pid in $started; do
  wait "$pid" || { cat "$work"/run-*; fail "one of the first runs"; }
done
[ "$(ls -A "$work/cache/acpterm" | wc -l)" = 1 ] || fail "more than one directory: $(ls -A "$work/cache/acpterm")"

echo "a cache directory in which others can write is refused"
chmod 777 "$work/cache/acpterm"
! XDG_CACHE_HOME="$work/cache" "$1" "$zipapp" --version 2>"$work/refused" || fail "it is used"
cat "$work/refused"

echo "an empty root that has only Python"
packages=$(sh "$here/../apt_sources.sh")
cp "$zipapp" "$here/../try.sh" "$work/"
mmdebstrap --quiet --mode=root --variant=apt --include=python3-minimal,libpython3-stdlib \
  --customize-hook="cp '$work/acpterm.pyz' '$work/try.sh' \"\$1/\"" \
  --customize-hook="chroot \"\$1\" useradd --create-home user" \
  --customize-hook="mount -t proc proc \"\$1/proc\" && mount --bind /dev \"\$1/dev\" && mount --bind /dev/pts \"\$1/dev/pts\"; chroot \"\$1\" setpriv --reuid=user --regid=user --init-groups --reset-env sh /try.sh /acpterm.pyz; status=\$?; umount \"\$1/dev/pts\" \"\$1/dev\" \"\$1/proc\"; exit \$status" \
  bookworm /dev/null "$packages" >"$work/log" 2>&1 || { cat "$work/log"; fail "in the empty root"; }
grep -v -e '^I: ' "$work/log"
