#!/bin/sh
# Try an installed acpterm: try.sh COMMAND..., where COMMAND is acpterm, from any directory.
#
# Prints what it does. It has a home directory, a runtime directory and a daemon of its own, and removes
# these at the end. The environment is that of a new user, but for PATH.
set -eu
home=$(mktemp -d)
run() { env -i PATH="$PATH" HOME="$home" XDG_RUNTIME_DIR="$home" LC_ALL=C.UTF-8 timeout 60 "$@"; }
clean_up() {
  run "$@" shutdown >/dev/null 2>&1 || true
  rm -rf "$home"
}
trap 'clean_up "$@"' EXIT
trap 'exit 1' INT TERM HUP
cd "$home"

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
version=$(run "$@" --version)
echo "$version"
case $version in *", version "*" (commit "*")") ;; *) fail "no version and commit" ;; esac
[ "$(echo hello | run "$@" run -- cat)" = hello ] || fail "acpterm run in a pipe"
terminal=$(run "$@" run -d -- sh -c 'test -t 0 && test -t 1 && printf "\033[1mbold\033[0m text\n"; exit 7')
run "$@" wait "$terminal" && fail "the exit status is lost" || [ $? = 7 ] || fail "not the program's exit status"
[ "$(run "$@" logs "$terminal")" = "bold text" ] || fail "acpterm logs"
[ "$(run "$@" screen "$terminal" | head -n 1)" = "bold text" ] || fail "acpterm screen: no emulator"
# Python 3.11.2 prints tracebacks where later versions do not.
[ "$(run "$@" stdio --socket /dev/null/agent.sock 2>&1 </dev/null | wc -l)" = 1 ] || fail "an error has not one line"
run "$@" restart
[ "$(run "$@" logs "$terminal")" = "bold text" ] || fail "the output is lost after acpterm restart"
run "$@" shutdown
