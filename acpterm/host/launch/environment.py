"""The environment and the resource limits of a terminal's program."""

import os
from collections.abc import Mapping
from typing import Final

from acpterm import __version__
from acpterm.acp.agent_meta import InitializeMeta, own_meta
from acpterm.acp.initialize import InitializeRequest
from acpterm.config import Settings
from acpterm.host.launch.validation import check_absolute, check_environment, check_size
from acpterm.jsonrpc import INVALID_PARAMS, RpcError, excerpt
from acpterm.pty.tracking import marks
from acpterm.runtime.exec_context import RLIMITS, ExecContext

# Variables that describe another terminal, or the window or editor around it; a program that
# believed them would talk to that terminal. The variables of the user's settings for these programs
# stay, such as VIMINIT and TMUX_TMPDIR.
_OF_ANOTHER_TERMINAL: Final = frozenset(
    (
        *("COLUMNS", "LINES", "TERMCAP", "COLORFGBG", "SSH_TTY", "WINDOWID"),
        *("TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TERM_SESSION_ID", "TERMINAL_EMULATOR"),
        *("LC_TERMINAL", "LC_TERMINAL_VERSION", "VTE_VERSION", "XTERM_VERSION", "XTERM_SHELL"),
        *("WT_SESSION", "WT_PROFILE_ID", "GNOME_TERMINAL_SCREEN", "GNOME_TERMINAL_SERVICE"),
        *("TMUX", "TMUX_PANE", "STY", "WINDOW", "MC_SID", "TILIX_ID"),
        *("NVIM", "NVIM_LISTEN_ADDRESS", "VIM", "VIMRUNTIME", "MYVIMRC", "VIM_TERMINAL"),
        *("VIM_SERVERNAME", "INSIDE_EMACS", "EMACS"),
    )
)
_OF_ANOTHER_TERMINAL_PREFIXES: Final = (
    *("ALACRITTY_", "GHOSTTY_", "ITERM_", "KITTY_", "KONSOLE_", "PTYXIS_", "TERMINATOR_"),
    *("VSCODE_", "WEZTERM_", "ZELLIJ"),
)
# These may be scripts in a directory of VS Code, which fail without the variables VSCODE_*.
_SCRIPT_VARIABLES: Final = ("GIT_ASKPASS", "GIT_EDITOR")
_VSCODE_SCRIPTS: Final = "/extensions/git/dist/"
# Variables that only concern the daemon, or the directory and program that the context had. bash
# would read the file BASH_ENV before each line.
_NOT_INHERITED: Final = _OF_ANOTHER_TERMINAL.union(
    marks.DETACHED,
    ("LISTEN_FDNAMES", "LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET", "WATCHDOG_PID"),
    ("WATCHDOG_USEC", "OLDPWD", "_", "BASH_ENV"),
)
_LIMIT_MAX: Final = (1 << 63) - 1
_OF_THIS_TERMINAL: Final = {
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "TERM_PROGRAM": "acpterm",
    "TERM_PROGRAM_VERSION": __version__,
}
# Pagers are disabled, because an agent's terminal has no user to turn pages. The other variables
# are for tools that ignore PAGER, or prefer their own variable.
_PAGER_VARIABLES: Final = (
    "PAGER",
    "AWS_PAGER",
    "BAT_PAGER",
    "DELTA_PAGER",
    "GH_PAGER",
    "GIT_PAGER",
    "MANPAGER",
    "SYSTEMD_PAGER",
)
# LESS is for programs that ignore these variables and start less: with `F`, less quits at once if
# the text fits on the screen.
_NO_PAGERS: Final = {**dict.fromkeys(_PAGER_VARIABLES, "cat"), "LESS": "FRX"}
# git takes the text that it proposes, as if the user had left the editor at once.
_NO_EDITORS: Final = {"GIT_EDITOR": "true", "GIT_SEQUENCE_EDITOR": "true"}


def added_variables(
    settings: Settings, requested: Mapping[str, str | None], *, attended: bool
) -> dict[str, str | None]:
    """Return the variables to set, or to remove (None), on whatever host."""
    if attended:
        return {**_OF_THIS_TERMINAL, **requested}
    wanted = {**settings.agent_env, **requested}
    # GIT_SEQUENCE_EDITOR would override a GIT_EDITOR that is wanted.
    no_editors = settings.disable_editors and "GIT_EDITOR" not in wanted
    return {**_OF_THIS_TERMINAL, **_NO_PAGERS, **(_NO_EDITORS if no_editors else {}), **wanted}


def terminal_environment(
    context: ExecContext, cwd: str, added: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return the environment of a program that starts in `cwd`, on this machine."""
    inherited = {
        name: value
        for name, value in context.env.items()
        if name not in _NOT_INHERITED
        and not name.startswith(_OF_ANOTHER_TERMINAL_PREFIXES)
        and not (name in _SCRIPT_VARIABLES and _VSCODE_SCRIPTS in value)
    }
    if inherited.get("SHLVL", "0") == "0":
        # The bash of Debian reads ~/.bashrc if it seems to be the first shell after ssh.
        inherited["SHLVL"] = "1"
    # The keeper replaces the empty GPG_TTY by the path of the terminal, which it creates. Shells
    # take PWD for their directory if it is one; without it, they would resolve symbolic links.
    return {**inherited, "GPG_TTY": "", "PWD": os.path.normpath(cwd), **added}


def limits_by_name(rlimits: Mapping[str, tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Convert limits by name, such as `NOFILE`, to those of an `ExecContext`."""
    # Raises `RpcError` (-32602) for a limit that no process can have. Unknown names are skipped.
    for name, (soft, hard) in rlimits.items():
        for value in (soft, hard):
            if not -1 <= value <= _LIMIT_MAX:
                raise RpcError(
                    INVALID_PARAMS,
                    f"rlimits.{excerpt(name)} has {excerpt(str(value))}: a limit is -1, for none, "
                    f"or 0 to {_LIMIT_MAX}",
                )
        if hard != -1 and (soft == -1 or soft > hard):
            raise RpcError(
                INVALID_PARAMS,
                f"rlimits.{excerpt(name)} is [{soft}, {hard}]: the soft limit, which comes first, "
                "must not be above the hard one (-1 is none, which is above all)",
            )
    return tuple((RLIMITS[name], *both) for name, both in rlimits.items() if name in RLIMITS)


def requested_context(context: ExecContext, params: InitializeRequest) -> ExecContext:
    """Return `context`, changed as an `initialize` request asks. Raises `RpcError` (-32602)."""
    options = own_meta(params.meta, InitializeMeta)
    requested = options and (options.context or options.asker)
    if not requested:
        return context
    if requested.cwd is not None:
        check_absolute(requested.cwd)
    if requested.env is not None:
        check_environment(requested.env.items())
        check_size("", None, requested.env, context.rlimits)
    return context._replace(
        env=context.env if requested.env is None else requested.env,
        cwd=context.cwd if requested.cwd is None else requested.cwd,
        umask=context.umask if requested.umask is None else requested.umask,
        rlimits=context.rlimits if requested.rlimits is None else limits_by_name(requested.rlimits),
    )
