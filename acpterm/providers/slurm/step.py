"""The scripts of a job step: around `srun` on this machine, and around the program on the node.

The node needs the working directory, the environment and the arguments of a program. They are
written as shell text. The text is put into a few variables of srun's environment, and Slurm passes
these variables to the node. So other users cannot read the text in a command line, and the
program's environment does not change what srun itself does. On the node, a shell evaluates the
text, and the program then replaces the shell. The variables that Slurm sets on the node are not
overwritten, because a program finds its job by them.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from acpterm.providers.exec_script import exec_script_text, shell_there
from acpterm.providers.provider import Command
from acpterm.providers.ssh.scripts import END, JOB_VARIABLE
from acpterm.pty.tracking.marks import DAEMON, TERMINAL

_PIECE: Final = "ACPTERM_STEP_"
# Linux limits a variable of an environment to 128 KiB; a character has up to four bytes.
_PIECE_CHARACTERS: Final = 30_000
_PIECES_MAX: Final = 100
# The prefixes of the variables with which Slurm describes the step to the program.
_OF_SLURM: Final = ("SLURM_", "SLURMD_")
# Names of variables that a shell exports unchanged; all other variables are set by env(1).
_EXPORTED: Final = re.compile(
    r"(?!(?:IFS|PPID|UID|EUID|SHELLOPTS|BASHOPTS|BASHPID|LINENO|RANDOM|SECONDS|HISTCMD|OPTIND)$)"
    r"[A-Za-z][A-Za-z0-9_]*"
)

# $1 is the file for srun's messages. $2 is the file with salloc's messages if the step waits for an
# allocation, else empty. The argv of srun follows, in which JOB is replaced by the id of the
# allocation. srun inherits the PTY. If the task was never launched, the script prints why.
_WRAPPER: Final = r"""
log=$1 granted=$2
shift 2
trap : INT
if [ -n "$granted" ]; then
  job= failure= tries=0
  while [ -z "$job" ]; do
    [ -e "$granted" ] || { echo "acpterm: the allocation was released" >&2; exit 255; }
    while IFS= read -r line; do
      case $line in
        "salloc: Granted job allocation "*) job=${line##* } ;;
        "salloc: error: "* | "salloc: fatal: "* | "salloc: option "*) failure=$line ;;
        "salloc: unrecognized option "* | "salloc: invalid option "*) failure=$line ;;
      esac
    done <"$granted"
    if [ -z "$job" ] && [ -n "$failure" ]; then
      echo "$failure" >&2
      echo "$failure" | sed 's/^salloc/srun/' >>"$log"
      exit 255
    fi
    if [ -z "$job" ]; then
      # The queue may take hours.
      tries=$((tries + 1))
      if [ "$tries" -lt 50 ]; then sleep 0.1; else sleep 1; fi
    fi
  done
  count=$#
  while [ "$count" -gt 0 ]; do
    case $1 in
      --jobid=JOB) set -- "$@" "--jobid=$job" ;;
      *) set -- "$@" "$1" ;;
    esac
    shift
    count=$((count - 1))
  done
fi
"$@" 2>>"$log"
status=$?
if [ "$status" != 0 ] && [ -r "$log" ]; then
  while IFS= read -r line; do
    case $line in
      "srun: launching "*) exit "$status" ;;
    esac
  done <"$log"
  while IFS= read -r line; do
    case $line in
      "srun: error: "* | "srun: fatal: "* | "srun: option "*) echo "$line" >&2 ;;
      "srun: unrecognized option "* | "srun: invalid option "*) echo "$line" >&2 ;;
    esac
  done <"$log"
fi
exit "$status"
"""

_END_HEAD: Final = """\
id=$1 grace=$2 seq=0 leader= start= known=
trap '' HUP INT TERM
"""

# Prints why the shell could not change to the directory $_d, and exits with 126.
_NO_DIRECTORY: Final = (
    'if [ -d "$_d" ]; then _r="Permission denied"; elif [ -e "$_d" ]; then _r="Not a directory"; '
    'else _r=$(LC_ALL=C ls -d -- "$_d" 2>&1); _r=${_r##*: }; fi; '
    'printf \'acpterm: %s: cannot be the working directory: %s\\n\' "$_d" "$_r" >&2; exit 126'
)

# Sends the signal $2 to the foreground process group of the terminal of the task $1.
_SIGNAL: Final = f"""\
how=no
for p in $(grep -l "{JOB_VARIABLE}=$1" /proc/[0-9]*/environ 2>/dev/null); do
  p=${{p#/proc/}}
  read -r stat <"/proc/${{p%%/*}}/stat" || continue
  set -- "$1" "$2" ${{stat##*") "}}
  [ "$8" -gt 0 ] || continue
  kill -s "$2" -- "-$8" 2>/dev/null && how=yes
  break
done
echo "acpterm 0 $how"
"""


def wrapper_argv(log: str, granted: str, argv: Sequence[str]) -> list[str]:
    """Return the argv of the script that runs srun (`argv`); its messages go to `log`."""
    # If `granted` is the file with salloc's messages, the script waits for the allocation, and sets
    # its id in `--jobid=JOB`.
    return ["/bin/sh", "-c", _WRAPPER, "acpterm", log, granted, *argv]


def node_argv(pieces: int) -> list[str]:
    """Return the argv of a shell on the node that evaluates the text of `node_environment`."""
    text = "".join(f"${{{_PIECE}{number}}}" for number in range(pieces))
    return ["/bin/sh", "-c", f'eval "{text}"']


def node_environment(command: Command, directory: str, identifier: str) -> dict[str, str]:
    """Return the pieces of a shell text that runs `command`, as variables for srun."""
    text = _text(command, directory, identifier)
    starts = range(0, len(text), _PIECE_CHARACTERS)
    return {
        f"{_PIECE}{number}": text[at : at + _PIECE_CHARACTERS] for number, at in enumerate(starts)
    }


def _text(command: Command, directory: str, identifier: str) -> str:
    env: Mapping[str, str] = {
        name: text
        for name, text in command.env.items()
        if name not in ("PWD", "GPG_TTY") and not name.startswith(_OF_SLURM)
    }
    exported = {name: text for name, text in env.items() if _EXPORTED.fullmatch(name)}
    others = [f"{name}={text}" for name, text in env.items() if name not in exported]
    argv = shell_there(command.argv, command.shell)
    fallback = command.fallback_argv and shell_there(command.fallback_argv, command.shell)
    where = shlex.quote(directory)
    lines = [
        f"unset {TERMINAL} {DAEMON} LC_ALL",
        f"unset {' '.join(f'{_PIECE}{number}' for number in range(_PIECES_MAX))}",
        f"cd -- {where} 2>/dev/null || {{ _d={where}; {_NO_DIRECTORY}; }}",
        "export PWD",
        *(f"export {name}={shlex.quote(text)}" for name, text in exported.items()),
        # The quotes keep `end_argv` and `signal_argv` from finding this text in srun's own
        # environment, and taking srun for a process of the task.
        f"export {JOB_VARIABLE}'='{identifier}",
        f"set -- {len(argv)} {' '.join(map(shlex.quote, [*argv, *(fallback or ())]))}",
        exec_script_text(" ".join(["env", *map(shlex.quote, others)]) if others else ""),
    ]
    return "\n".join(lines)


def end_argv(identifier: str, grace: float) -> list[str]:
    """Return the argv that, on the node, ends the processes marked by `identifier`."""
    return ["/bin/sh", "-c", _END_HEAD + END, "acpterm", identifier, str(round(10 * grace))]


def signal_argv(identifier: str, name: str) -> list[str]:
    """Return the argv that, on the node, signals a program's foreground process group."""
    return ["/bin/sh", "-c", _SIGNAL, "acpterm", identifier, name]
