#!/bin/sh
# Try an installed acpterm: try.sh COMMAND..., where COMMAND is acpterm, from any directory.
#
# Prints what it does. It uses a temporary home directory, a temporary runtime directory and a separate
# daemon, and removes them at the end. The environment is that of a new user, except PATH.
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

# Parsing a command needs the libraries of tree-sitter and tree-sitter-bash.
status=0
judged=$(run "$@" policy check 'ls; rm -r x') || status=$?
case "$status $judged" in "3 level "*" dangerous"*) ;; *) fail "acpterm policy check: status $status: $judged" ;; esac
run "$@" policy check 'ls | head' >/dev/null || fail "acpterm policy check: a safe command is not allowed"
# tomlkit changes the settings file.
run "$@" provider set local >/dev/null
run "$@" provider list | sed 's/:.*//' | grep -E '^[* ] [a-z]+ ' || fail "acpterm provider list"
# The skill is a file in the package.
run "$@" setup claude --skill --yes >/dev/null
grep -q '^name: acpterm$' .claude/skills/acpterm/SKILL.md || fail "acpterm setup --skill"
run "$@" setup claude --skill --undo --yes >/dev/null
[ ! -e .claude ] || fail "acpterm setup --undo"
run "$@" policy deny -- rm -r project >/dev/null
# An agent. It does not wait for its commands, so they may still run when it ends.
mkdir project
for request in '1 rm -r project' '2 echo created'; do
  printf '{"jsonrpc":"2.0","id":%s,"method":"terminal/create","params":{"sessionId":"try","command":"%s"}}\n' \
    "${request%% *}" "${request#* }"
done | run "$@" stdio >answers 2>/dev/null
grep -q '"id":1,"error"' answers || fail "a dangerous command is not refused: $(cat answers)"
# The log is written soon after the answers.
tries=0
until run "$@" audit --json >audited && grep -q '"event":"refused".*"command":"rm -r project"' audited \
  && grep '"event":"create"' audited | grep -q '"command":"echo created".*"level":"safe"'; do
  [ "$((tries += 1))" -lt 50 ] || fail "acpterm audit: $(cat answers audited)"
  sleep 0.1
done
run "$@" audit | grep ' create ' || fail "acpterm audit prints no create"
run "$@" shutdown
