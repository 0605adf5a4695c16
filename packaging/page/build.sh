#!/bin/sh
# Copy the libraries of the page into acpterm/web/page/vendor/, unless they are there already. Needs npm.
#
# The versions and hashes are in package-lock.json. The files are those that the packages publish, without
# the references to source maps, which are not shipped.
set -eu
cd "$(dirname "$0")"
vendor=$(cd ../../acpterm/web/page && pwd)/vendor
stamp=$(cat package.json package-lock.json build.sh | cksum)
[ "$(cat "$vendor/.stamp" 2>/dev/null)" != "$stamp" ] || exit 0
command -v npm >/dev/null || { echo "the page is built with npm: install Node.js 20 or newer" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
cp package.json package-lock.json "$work"
(cd "$work" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)

umask 022
rm -rf "$vendor"
mkdir -p "$vendor"
for name in xterm addon-fit addon-unicode-graphemes addon-web-links; do
  from=$work/node_modules/@xterm/$name
  sed '/^\/\/# sourceMappingURL=/d' "$from/lib/$name.mjs" >"$vendor/$name.mjs"
  cat "$from/LICENSE" >"$vendor/$name.LICENSE"
done
cat "$work/node_modules/@xterm/xterm/css/xterm.css" >"$vendor/xterm.css"
echo "$stamp" >"$vendor/.stamp"
