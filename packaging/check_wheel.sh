#!/bin/sh
# Install the wheel in new environments, without the repository: check_wheel.sh WHEEL PYTHON...
#
# By pip with each PYTHON, and by pipx and uv with the first one. Each installation is tried, and must
# have the manual pages, completions, systemd units and the page.
set -eu
wheel=$(realpath "$1")
shift
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
cd "$work"

# files PREFIX: check that the installation in PREFIX has the files that are not Python.
files() {
  for file in man/man1/acpterm.1 man/man1/acpterm-ls.1 bash-completion/completions/acpterm \
    zsh/site-functions/_acpterm fish/vendor_completions.d/acpterm.fish systemd/user/acpterm.service \
    systemd/user/acpterm.socket; do
    test -s "$1/share/$file" || { echo "FAILED: no $1/share/$file" >&2; exit 1; }
  done
  for file in index.html js/main.js vendor/xterm.mjs vendor/xterm.LICENSE; do
    ls "$1"/lib/python*/site-packages/acpterm/web/page/"$file" >/dev/null || { echo "FAILED: no $file of the page" >&2; exit 1; }
  done
}

for python; do
  "$python" --version
  "$python" -m venv "$work/pip"
  "$work/pip/bin/pip" install -qq "$wheel"
  sh "$here/try.sh" "$work/pip/bin/acpterm"
  files "$work/pip"
  # `man` looks beside each directory of PATH, as docs/install.md says.
  ! command -v man >/dev/null || PATH="$work/pip/bin:$PATH" MANPATH= man -w acpterm >/dev/null \
    || { echo "FAILED: man does not find acpterm" >&2; exit 1; }
  rm -rf "$work/pip"
done

"$1" -m venv "$work/tools"
"$work/tools/bin/pip" install -qq pipx uv
echo "pipx install"
export PIPX_HOME="$work/pipx" PIPX_BIN_DIR="$work/pipx/bin" PIPX_MAN_DIR="$work/pipx/man"
"$work/tools/bin/pipx" install --quiet "$wheel"
sh "$here/try.sh" "$work/pipx/bin/acpterm"
files "$work/pipx/venvs/acpterm"
test -e "$work/pipx/man/man1/acpterm.1" || { echo "FAILED: pipx has no manual page" >&2; exit 1; }
"$work/tools/bin/pipx" uninstall acpterm
test ! -e "$work/pipx/bin/acpterm"

echo "uv tool install"
export UV_TOOL_DIR="$work/uv" UV_TOOL_BIN_DIR="$work/uv/bin" UV_CACHE_DIR="$work/cache" UV_NO_PROGRESS=1
"$work/tools/bin/uv" tool install --quiet --no-python-downloads --python "$1" "$wheel"
sh "$here/try.sh" "$work/uv/bin/acpterm"
files "$work/uv/acpterm"
"$work/tools/bin/uv" tool uninstall --quiet acpterm
test ! -e "$work/uv/bin/acpterm"
