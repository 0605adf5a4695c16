#!/bin/sh
# Build Debian packages in a clean root of Debian bookworm.
#
# build.sh PYTHON OUT CHECKOUT...: for each checkout, which has its wheel in dist/, write the packages of
# the checked-out commit to the directory OUT. mmdebstrap creates the root from this machine's package
# sources; the builds in it have no network. lintian must find no error. Needs root and mmdebstrap.
set -eu
python=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2
packages=$(sh "$(dirname "$0")/../apt_sources.sh")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
mkdir "$work/build"

for checkout; do
  version=$(git -C "$checkout" show HEAD:acpterm/__init__.py | sed -n 's/^__version__ = "\(.*\)"$/\1/p')
  source=$work/build/acpterm-$version
  mkdir "$source"
  git -C "$checkout" archive HEAD | tar -x -C "$source"
  cp -r "$source/packaging/debian" "$source/debian"
  mkdir "$source/wheels"
  cp "$checkout/dist/acpterm-$version"-*.whl "$source/wheels/"
  "$python" -m pip download -qq --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: \
    --python-version=3.11 --platform=manylinux_2_28_x86_64 --platform=manylinux2014_x86_64 \
    --requirement="$checkout/packaging/requirements.txt" --dest="$source/wheels"
  date=$(git -C "$checkout" log -1 --format=%ct)
  echo "$date" >"$source/debian/date"
  cat >"$source/debian/changelog" <<CHANGELOG
acpterm ($version-1) unstable; urgency=medium

  * See /usr/share/doc/acpterm-common/changelog.gz.

 -- The acpterm authors <maintainers@acpterm.example>  $(date -u -R -d "@$date")
CHANGELOG
done

cat >"$work/build/build" <<'BUILD'
set -eu
for source in /build/acpterm-*/; do
  cd "$source"
  SOURCE_DATE_EPOCH=$(cat debian/date) dpkg-buildpackage --no-sign --build=binary
done
lintian --allow-root --fail-on=error --suppress-tags=initial-upload-closes-no-bugs /build/*.changes
BUILD
# Only the build's results are kept, not the root directory.
mmdebstrap --quiet --mode=root --variant=apt \
  --include=build-essential,debhelper,fakeroot,lintian,python3,systemd \
  --customize-hook="cp -r '$work/build' \"\$1/build\"" \
  --customize-hook="unshare --net chroot \"\$1\" sh /build/build" \
  --customize-hook="cp \"\$1\"/build/*.deb '$out'" \
  bookworm /dev/null "$packages" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
grep -E '^[EWI]: ' "$work/log" || echo "lintian: no errors, no warnings"
ls -l "$out"/*.deb
