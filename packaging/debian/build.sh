#!/bin/sh
# Build the Debian packages from dist/acpterm-*.whl in a clean root of Debian bookworm, into dist/.
#
# build.sh PYTHON [VERSION]: VERSION is that of acpterm by default. The root is created by mmdebstrap with
# this machine's package sources, and has no network when it builds. Needs root and mmdebstrap.
set -eu
python=$1
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cd "$top"
version=${2:-$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' acpterm/__init__.py)}
sources=$(ls /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

source=$work/acpterm-$version
mkdir "$source"
git archive HEAD | tar -x -C "$source"
cp -r "$source/packaging/debian" "$source/debian"
mkdir "$source/wheels"
cp dist/acpterm-*.whl "$source/wheels/"
"$python" -m pip download -qq --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: \
  --python-version=3.11 --platform=manylinux_2_28_x86_64 --platform=manylinux2014_x86_64 \
  --requirement=packaging/requirements.txt --dest="$source/wheels"
cat >"$source/debian/changelog" <<CHANGELOG
acpterm ($version-1) unstable; urgency=medium

  * See /usr/share/doc/acpterm-common/changelog.gz.

 -- The acpterm authors <maintainers@acpterm.example>  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
CHANGELOG

# The root is discarded; mmdebstrap runs the hook in it. --unshare-net: the build gets no network.
mmdebstrap --quiet --mode=root --variant=apt \
  --include=build-essential,debhelper,fakeroot,lintian,python3,systemd \
  --customize-hook="copy-in '$source' /" \
  --customize-hook="unshare --net chroot \"\$1\" sh -eu -c 'cd /acpterm-$version && dpkg-buildpackage --no-sign --build=binary'" \
  --customize-hook="chroot \"\$1\" sh -eu -c 'lintian --allow-root --fail-on error /acpterm*.changes'" \
  --customize-hook="mkdir -p '$work/debs' && cp \"\$1\"/*.deb '$work/debs/'" \
  bookworm /dev/null "$sources"
mkdir -p dist
rm -f dist/*.deb
cp "$work"/debs/*.deb dist/
ls -l dist/*.deb
