"""The shell text that finds and executes a program in a sandbox, in a container or on a node.

The shell runs in the sandbox, in the container or on the node, and searches the program there: the
program's path may differ from the path outside. If the program does not exist, the shell executes
the fallback (a second argv), if there is one. The exit status is 127 if the program is not found,
and 126 if it cannot be run. `keeper.programs.child` does the same for all other programs on this
machine, with the same messages.

The shell removes variables from the environment if it does not accept their names. bash, for
example, exports functions in variables with such names.
"""

from collections.abc import Sequence
from typing import Final

# $1 is the number of words of the argv; the argv and the fallback's argv follow. The search uses
# builtins only, since each process takes half a millisecond. If `exec` fails, the shell prints why,
# and exits; the trap then sets the exit status.
_TEXT: Final = """\
set -f
_n=$1 _w=$2 _f= _r=; shift
case $_w in
*/*) if [ -e "$_w" ] || [ -L "$_w" ]; then _f=$_w; fi ;;
*) IFS=:
for _d in ${PATH-/bin:/usr/bin}; do
_d=${_d:-.}/$_w
if [ -f "$_d" ] && [ -x "$_d" ]; then _f=$_d; break; fi
if [ -z "$_r" ] && [ -e "$_d" ]; then _r=$_d; fi
done
unset IFS
: "${_f:=$_r}" ;;
esac
if [ -z "$_f" ]; then
if [ "$#" -gt "$_n" ]; then shift "$_n"; exec "$@"; fi
printf 'acpterm: %s: command not found\\n' "$_w" >&2
exit 127
fi
if ! [ -f "$_f" ] || ! [ -x "$_f" ]; then
_r="Permission denied"
if ! [ -e "$_f" ]; then _r="No such file or directory"; fi
printf 'acpterm: %s: cannot be run: %s\\n' "$_w" "$_r" >&2
exit 126
fi
while [ "$#" -gt "$_n" ]; do
_i=0 _c=$#
while [ "$_i" -lt "$_n" ]; do set -- "$@" "$1"; shift; _i=$((_i + 1)); done
shift "$((_c - _n))"
done
trap 'exit 126' EXIT
exec "$@"
"""
# Executes the shell of the settings ($0). If it is not there: another bash, if it is bash; else sh.
_SHELL_THERE: Final = """\
if command -v -- "$0" >/dev/null; then exec "$0" "$@"; fi
case $0 in */bash) if command -v bash >/dev/null; then exec bash "$@"; fi ;; esac
exec /bin/sh "$@"
"""


def shell_there(argv: Sequence[str], shell: str) -> Sequence[str]:
    """Return `argv` with another shell in place of `shell`, which may be missing there."""
    if argv[0] != shell or shell == "/bin/sh":
        return argv
    return ["/bin/sh", "-c", _SHELL_THERE, *argv]


def exec_script_text(before: str) -> str:
    """Return the script, with shell text such as `env A=1` before the argv to execute."""
    # Its parameters: the number of words of the argv, these words, and those of the fallback.
    return _TEXT.replace('exec "$@"', f'exec {before} "$@"')


def exec_script_argv(
    shell: str, argv: Sequence[str], fallback_argv: Sequence[str] | None
) -> list[str]:
    """Return the argv of a shell that executes `argv`, or `fallback_argv` if that is missing."""
    return [shell, "-c", _TEXT, "acpterm", str(len(argv)), *argv, *(fallback_argv or ())]
