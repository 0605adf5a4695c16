#!/bin/sh
# Make a release: release.sh VERSION RELEASE_URL, for example 1.2.3 https://host/acpterm/1.2.3.
#
# In a clean clone of this checkout: set the version, date the changelog, generate the pages, commit and
# tag; then run all checks (.ci/run full, which also tries the packages) and build the packages. Only if all of
# this succeeds, this checkout gets the commit and the tag, and dist/ the files. Nothing is published. The
# recipes download the files from RELEASE_URL. CHECKS is another command to run instead of that.
set -eu
version=$1 url=$2
cd "$(dirname "$0")/.."
fail() {
  echo "release: $*" >&2
  exit 1
}
echo "$version" | grep -Eqx '[0-9]+\.[0-9]+\.[0-9]+' || fail "VERSION is '$version', not of the form 1.2.3"
[ -n "$url" ] || fail "RELEASE_URL is not set: the URL of the directory where you will publish dist/"
[ "$(id -u)" = 0 ] || fail "needs root, to make clean roots of Debian"
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed: git status"
! git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null || fail "the tag v$version exists"
! grep -q "^## \[$version\]" CHANGELOG.md || fail "CHANGELOG.md has version $version already"
sed -n '/^## \[Unreleased\]/,/^## \[[0-9]/p' CHANGELOG.md | grep -q '^- ' \
  || fail "CHANGELOG.md has nothing under Unreleased"
name=$(git config user.name) && email=$(git config user.email) || fail "git has no user.name or user.email"
top=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
git clone --quiet . "$work/acpterm"
cd "$work/acpterm"
git config user.name "$name"
git config user.email "$email"

previous=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' acpterm/__init__.py)
sed -i "s/^__version__ = .*/__version__ = \"$version\"/" acpterm/__init__.py
sed -i "s/\"version\":\"$previous\"/\"version\":\"$version\"/" docs/protocol.md
today=$(date -u +%F)
anchor=$(echo "$version" | tr -d .)---$today
sed -i "s/^## \[Unreleased\]/&\n\n## [$version] - $today/; s/^\[Unreleased\]: .*/&\n[$version]: #$anchor/" CHANGELOG.md
# .ci/run chooses the Python of .venv itself.
make docs VENV=.venv-docs
git commit --quiet --all --message="Release $version"
git tag --annotate --message="acpterm $version" "v$version"

${CHECKS:-bash .ci/run full}
make recipes zipapp deb RELEASE_URL="$url"
(cd dist && find . -type f ! -name SHA256SUMS -exec sha256sum {} + | sort -k 2 >SHA256SUMS)

cd "$top"
rm -rf dist
cp -r "$work/acpterm/dist" dist
git fetch --quiet --no-tags "$work/acpterm" HEAD
git merge --quiet --ff-only FETCH_HEAD || fail "this checkout has changed meanwhile; dist/ has the files"
git fetch --quiet "$work/acpterm" "refs/tags/v$version:refs/tags/v$version"
cat dist/SHA256SUMS
echo "release: committed and tagged v$version; to publish, push both, and upload dist/ to $url"
