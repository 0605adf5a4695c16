r"""The rc file, the typed line and the command file of fish, 3.1 or newer (`kind` defines them).

fish has events for the beginning and the end of a command line, whose handlers emit the marks C and
D. After the event for the beginning, fish still sets the terminal's title, which is output. So the
typed line emits a second mark C. Functions cannot replace ``set``, ``test``, ``string`` and
``builtin``, whose names are reserved in fish.

fish parses a file before it executes any of it. A command file consists of the command and a line
that saves the pipe status, since ``source`` overwrites it. This line is missing if the command may
continue on the next line. In fish, ``exit`` in a sourced file ends the file and not the shell.
"""

import re

RC = r"""
set -g fish_history ''
set -g __acpterm_nonce @nonce@
set -g __acpterm_dir @dir@
set -g __acpterm_n 0
set -g __acpterm_open 0
set -g __acpterm_pipe

function __acpterm_mark
    builtin printf '\e]133;%s;aid=%s;pid=%s;n=%s\a' $argv[1] $__acpterm_nonce $fish_pid \
        $__acpterm_n >/dev/tty
end

function __acpterm_report
    # Arguments: event, status, pipe status
    set -l here 1
    test -d "$PWD"; or set here 0
    builtin printf '\0%s %s %s %s %s %s - %s %s\0' $__acpterm_nonce $argv[1] $__acpterm_n \
        $fish_pid $argv[2] $argv[3] $here "$PWD" >$__acpterm_dir/$__acpterm_n.$argv[1]
end

function __acpterm_preexec --on-event fish_preexec
    __acpterm_mark C 2>/dev/null
end

function __acpterm_begin
    set -l before $status
    set -g __acpterm_n $argv[1]
    set -g __acpterm_open 1
    set -g __acpterm_pipe
    __acpterm_mark C 2>/dev/null
    return $before
end

function __acpterm_end
    # Arguments: status and pipe status of the command
    set -g __acpterm_pipe $argv[2..]
    return $argv[1]
end

function __acpterm_postexec --on-event fish_postexec
    set -l now $status
    if test "$__acpterm_open" = 1
        set -g __acpterm_open 0
        set -q __acpterm_pipe[1]; or set -g __acpterm_pipe -
        __acpterm_report end $now (string join , -- $__acpterm_pipe) 2>/dev/null
        __acpterm_mark "D;$now" 2>/dev/null
    end
end

function __acpterm_ready --on-event fish_prompt
    __acpterm_mark A 2>/dev/null
    for mode in default insert visual
        bind -M $mode -m insert \e\[31415~ 'commandline ""' 2>/dev/null
    end
    bind \e\[31415~ 'commandline ""'
    for mode in default insert visual
        bind -M $mode -m insert \e\[31417~ \
            'commandline -r " command stty sane"; commandline -f execute' 2>/dev/null
    end
    bind \e\[31417~ 'commandline -r " command stty sane"; commandline -f execute'
    __acpterm_mark B 2>/dev/null
end

__acpterm_report ready 0 0 2>/dev/null
"""

#: Removes what the user has typed at the prompt.
CLEAR_LINE = b"\x1b[31415~"

_EMPTY = re.compile(r"(\s*(#.*)?\n)*\s*(#.*)?")
_END = "\n\n__acpterm_end $status $pipestatus\n"
_LINE = " __acpterm_begin {n}; builtin source {path}"

# If a command ends in one of these, or in a comment, fish may treat the next line as a part of it.
_CONTINUED = re.compile(
    r"(#.*|[|&\\]|(^|[\s;(])(and|or|not|!|time|exec|command|builtin|if|while|else|begin))\s*\Z"
)


def command_file(n: int, command: str, flags: str) -> str:  # noqa: ARG001  as the other shells
    """Return the file of command `n`."""
    if _EMPTY.fullmatch(command):
        # Without `true`, fish would keep the previous exit code; other shells return 0.
        return command + "\ntrue\n"
    return command + ("\n" if _CONTINUED.search(command) else _END)


def typed_line(n: int, path: str) -> str:
    return _LINE.format(n=n, path=path)
