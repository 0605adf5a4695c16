#!/bin/sh
# Make a release: release.sh VERSION, for example 1.2.3. `make release VERSION=1.2.3` executes it.
#
# In a clean clone of this checkout: set the version, date the changelog, generate the pages, commit and
# tag; then run all checks (.ci/run, which also tries the packages) and build the packages. Only if all of
# this succeeds, this checkout gets the commit and the tag, and dist/ the files. Nothing is published.
# CHECKS is another command to run instead of .ci/run.
set -eu
version=$1
cd "$(dirname "$0")/.."
fail() {
  echo "release: $*" >&2
  exit 1
}
echo "$version" | grep -Eqx '[0-9]+\.[0-9]+\.[0-9]+' || fail "the version is $version, not of the form 1.2.3"
[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed: git status"
! git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null || fail "the tag v$version exists"
top=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
git clone --quiet . "$work/acpterm"
cd "$work/acpterm"
for name in user.name user.email; do
  git config "$name" "$(git -C "$top" config "$name")" || fail "git has no $name"
done

previous=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' acpterm/__init__.py)
entries=$(sed -n '/^## \[Unreleased\]/,/^## \[[0-9]/p' CHANGELOG.md | grep -c '^- ' || true)
[ "$entries" -gt 0 ] || fail "CHANGELOG.md has nothing under Unreleased"
sed -i "s/^__version__ = .*/__version__ = \"$version\"/" acpterm/__init__.py
sed -i "s/\"version\":\"$previous\"/\"version\":\"$version\"/" docs/protocol.md
today=$(date -u +%F)
anchor=$(echo "$version" | tr -d .)---$today
sed -i "s/^## \[Unreleased\]/&\n\n## [$version] - $today/; s/^\[$previous\]: /[$version]: #$anchor\n&/" CHANGELOG.md
make docs
git commit --quiet --all --message="Release $version"
git tag --annotate --message="acpterm $version" "v$version"

${CHECKS:-bash .ci/run}
make dist zipapp deb recipes
(cd dist && find . -type f ! -name SHA256SUMS -exec sha256sum {} + | sort -k 2 >SHA256SUMS)

cd "$top"
git pull --quiet --ff-only --tags "$work/acpterm" HEAD
rm -rf dist
cp -r "$work/acpterm/dist" dist
cat dist/SHA256SUMS
echo "release: committed and tagged v$version; to publish, push the commit and the tag, and upload dist/"
