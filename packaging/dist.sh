#!/bin/sh
# Build the wheel and the sdist of the checked-out commit into dist/.
#
# They are built twice, in different directories and with different umasks: the bytes must be the same.
# Changes that are not committed are not packaged. PYTHON must have the extra "package" of pyproject.toml;
# the libraries of the page are built with npm.
set -eu
python=$1
cd "$(dirname "$0")/.."
sh packaging/page/build.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

for try in first second; do
  umask "$([ $try = first ] && echo 022 || echo 077)"
  git clone --quiet --no-hardlinks . "$work/$try/source"
  cp -R acpterm/web/page/vendor "$work/$try/source/acpterm/web/page/"
  "$python" -m build --no-isolation --outdir "$work/$try/dist" "$work/$try/source" >"$work/log" 2>&1 \
    || { cat "$work/log"; exit 1; }
done
diff -r "$work/first/dist" "$work/second/dist"
"$python" -m twine --no-color check --strict "$work"/first/dist/*

umask 022
mkdir -p dist
rm -f dist/acpterm-*.whl dist/acpterm-*.tar.gz
cp "$work"/first/dist/* dist/
chmod 644 dist/acpterm-*.whl dist/acpterm-*.tar.gz
echo "two builds have the same bytes:"
cd dist
sha256sum acpterm-*.whl acpterm-*.tar.gz
