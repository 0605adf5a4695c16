"""Settings: one Struct, filled from a TOML file, then the environment, then flags.

A later source wins, setting by setting. The file is `$XDG_CONFIG_HOME/acpterm/config.toml`, or the
one that `ACPTERM_CONFIG` or `--config` names, which then has to exist. The environment's names are
`ACPTERM_` and the setting's in capitals. A value that does not fit is an error that names the
setting, the value and where it came from; an unknown setting in the file is one too. The
environment has only text, which is read as what it stands for: elsewhere `"5"` is no number.

`docs/settings.md` is generated from the Struct below: its types, defaults and the `title` beside
each.
"""

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from acpterm import keys

ENV_PREFIX = "ACPTERM_"
KIB = 1024
MIB = 1024 * KIB


class ConfigError(Exception):
    """A setting that cannot be used; the message says which, its value and its source."""


def _absolute(path: str) -> None:
    """Refuse a path that means another place wherever a command is run; raises `ValueError`."""
    if not os.path.isabs(path):
        raise ValueError("is not an absolute path")


def _variables(value: str | Mapping[str, str]) -> dict[str, str]:
    """Return environment variables, which text has as words; raises `ValueError`."""
    found = dict(value) if isinstance(value, Mapping) else {}
    for word in shlex.split(value) if isinstance(value, str) else ():
        name, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is not NAME=VALUE")
        found[name] = text
    for name, text in found.items():
        if not name or "=" in name or "\0" in name + text:
            raise ValueError(f"no environment can hold a variable {name!r}")
    return found


# A setting's `extra`: a `check` of its value besides, whose `ValueError` says what is wrong; a
# `read` makes the value of a setting that is text in the environment.
_PATH = {"check": _absolute}
_KEYS = {"check": keys.sequence}
_VARIABLES = {"check": _variables, "read": _variables}


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every setting there is."""

    socket: Annotated[
        str | None,
        Meta(
            title="Where the daemon listens for agents, an absolute path; by default `agent.sock` "
            "in `acpterm` in the user's runtime directory, or in `/tmp/acpterm-UID` without one.",
            extra=_PATH,
        ),
    ] = None
    user_socket: Annotated[
        str | None,
        Meta(
            title="Where the daemon listens for the person's commands, an absolute path; by "
            "default beside `socket`: `user.sock` for `agent.sock`, else its name and `.user`.",
            extra=_PATH,
        ),
    ] = None
    detach_key: Annotated[
        str,
        Meta(
            title="The key that leaves an attached terminal, or several after each other: `C-\\`, "
            "`C-b d`. Keys are as in `acpterm send --key`.",
            extra=_KEYS,
        ),
    ] = "C-\\"
    clipboard: Annotated[
        bool,
        Meta(
            title="Whether a program may write to the clipboard of an attached window (OSC 52). "
            "It can never read it.",
        ),
    ] = False
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(title="The least important messages to log."),
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"], Meta(title="How a log line on stderr is written.")
    ] = "text"
    max_message_bytes: Annotated[
        int, Meta(ge=KIB, title="The longest line that a peer may send, in bytes.")
    ] = 64 * MIB
    cols: Annotated[
        int, Meta(ge=1, le=10_000, title="A terminal's width in cells, unless asked otherwise.")
    ] = 120
    rows: Annotated[
        int, Meta(ge=1, le=10_000, title="A terminal's height in cells, unless asked otherwise.")
    ] = 40
    output_bytes: Annotated[
        int,
        Meta(ge=0, title="The text kept of a terminal whose creator sets no limit, in bytes."),
    ] = MIB
    max_output_bytes: Annotated[
        int, Meta(ge=0, title="The most that a creator's `outputByteLimit` may ask for, in bytes.")
    ] = 16 * MIB
    raw_bytes: Annotated[
        int, Meta(ge=0, title="The raw output kept of each terminal, in bytes.")
    ] = MIB
    kill_grace: Annotated[
        float,
        Meta(ge=0, le=60, title="Seconds between SIGTERM and SIGKILL when a terminal is killed."),
    ] = 2.0
    shell: Annotated[
        str,
        Meta(
            title="The POSIX shell that is given shell text, with `-c`: an absolute path.",
            extra=_PATH,
        ),
    ] = "/bin/sh"
    signal_exit_code: Annotated[
        Literal["auto"] | bool,
        Meta(
            title="Give 128+n as `exitCode` on death by signal n, instead of null; `auto` does so "
            "for agents that are known to take null for success."
        ),
    ] = "auto"
    agent_env: Annotated[
        dict[str, str],
        Meta(
            title="Variables for the agents' terminals, over the pagers that acpterm sets there; "
            'the agent\'s own win. A table in the file: `agent_env = { GH_PAGER = "less" }`; words '
            "in the environment: `GH_PAGER=less LESS=`.",
            extra=_VARIABLES,
        ),
    ] = msgspec.field(default_factory=dict)
    tracking: Annotated[
        Literal["auto", "cgroup", "subreaper"],
        Meta(title="How a terminal's processes are known: `auto` is cgroups where they work."),
    ] = "auto"
    keep_released: Annotated[
        int,
        Meta(
            ge=0,
            title="How many terminals stay readable for the person of those that a tool call "
            "showed and that were released; and, apart from these, how many of the user's own that "
            "have ended. What agents leave never takes the place of the user's.",
        ),
    ] = 100
    shown_lines: Annotated[
        int,
        Meta(
            ge=1,
            title="The last lines of a terminal that an editor is shown as text (`acpterm proxy`).",
        ),
    ] = 40
    shown_bytes: Annotated[
        int, Meta(ge=100, title="The bytes of text that these lines have at most.")
    ] = 8 * KIB
    idle_exit: Annotated[
        float,
        Meta(
            ge=0,
            title="Seconds without a connection, and without a terminal that somebody holds, after "
            "which a daemon ends that was started because it was needed (`serve --when-needed`). "
            "A terminal of the person's own is held until `acpterm rm`, or until it is forgotten.",
        ),
    ] = 600.0
    resume_timeout: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Seconds that a client waits for the daemon to answer again when its connection "
            "is lost, and that the daemon keeps the terminals of an agent whose connection is lost "
            "because the daemon's worker has died. With 0 no client connects again.",
        ),
    ] = 30.0
    keep_released_bytes: Annotated[
        int,
        Meta(ge=0, title="How many bytes of output each of both may hold."),
    ] = 64 * MIB
    keep_released_age: Annotated[
        float, Meta(ge=0, title="For how many seconds these stay readable.")
    ] = 24 * 3600.0
    record: Annotated[
        bool, Meta(title="Record the output of every terminal to a file: an asciicast each.")
    ] = False
    record_input: Annotated[
        bool,
        Meta(
            title="Record what is typed as well; never what is typed while the terminal's echo is "
            "off: that is passwords, but also all that is typed in shells and editors that show it "
            "by themselves."
        ),
    ] = False
    record_dir: Annotated[
        str | None,
        Meta(
            title="The folder of the recordings, an absolute path that only this user can write "
            "to; by default `recordings` in `acpterm` under the user's state directory.",
            extra=_PATH,
        ),
    ] = None
    record_bytes: Annotated[
        int, Meta(ge=64 * KIB, title="The most that one recording may have, in bytes.")
    ] = 16 * MIB
    record_files: Annotated[
        int,
        Meta(
            ge=1,
            title="How many recordings of the user's terminals are kept, and how many of agents'; "
            "the oldest go first, but none that is being written.",
        ),
    ] = 100


def default_socket() -> str:
    """Give the path of the agents' socket that is used when none is set.

    It is in the user's runtime directory; where there is none, in a folder of the user's own in
    `/tmp`, as tmux has it: the listener refuses one that belongs to somebody else.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(runtime):
        runtime = _mac_runtime_dir() if sys.platform == "darwin" else f"/run/user/{os.getuid()}"
        if not os.access(runtime, os.W_OK):
            runtime = ""
    if runtime:
        return os.path.join(runtime, "acpterm", "agent.sock")
    return f"/tmp/acpterm-{os.getuid()}/agent.sock"  # noqa: S108  its folder is checked, see above


def _mac_runtime_dir() -> str:
    import platformdirs  # noqa: PLC0415  slow to import

    return platformdirs.user_runtime_dir()


def default_record_dir() -> str:
    """Give the folder of the recordings that is used when none is set."""
    import platformdirs  # noqa: PLC0415  slow to import, and only the daemon needs it for this

    return os.path.join(platformdirs.user_state_dir("acpterm"), "recordings")


def agent_socket(settings: Settings) -> str:
    """Give the absolute path of the agents' socket."""
    return os.path.abspath(settings.socket or default_socket())


def user_socket(settings: Settings, agents: str | None = None) -> str:
    """Give the absolute path of the person's socket, by default beside the `agents`'."""
    if settings.user_socket:
        return os.path.abspath(settings.user_socket)
    directory, name = os.path.split(agents or agent_socket(settings))
    return os.path.join(directory, "user.sock" if name == "agent.sock" else f"{name}.user")


def default_file() -> str:
    """Give the path of the settings file that is read when none is named."""
    if sys.platform == "darwin":
        import platformdirs  # noqa: PLC0415  slow to import

        directory = platformdirs.user_config_dir("acpterm")
    else:
        # As platformdirs does it, and the XDG Base Directory Specification.
        home = os.environ.get("XDG_CONFIG_HOME", "")
        home = home if os.path.isabs(home) else os.path.expanduser("~/.config")
        directory = os.path.join(home, "acpterm")
    return os.path.join(directory, "config.toml")


def load(
    file: str | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Put the settings together. `flags` that are None were not given. Raises `ConfigError`."""
    environ = os.environ if environ is None else environ
    given: dict[str, _Given] = {}

    def add(more: Mapping[str, Any], source: str, *, is_text: bool = False) -> None:
        given.update({name: _Given(value, source, is_text) for name, value in more.items()})

    named = file or environ.get(f"{ENV_PREFIX}CONFIG")
    path = named or default_file()
    if named or os.path.exists(path):
        add(_read(path), path)
    for name in Settings.__struct_fields__:
        variable = ENV_PREFIX + name.upper()
        if variable in environ:
            add({name: environ[variable]}, f"the environment's {variable}", is_text=True)
    here = {name: _from_here(name, value) for name, value in (flags or {}).items()}
    add({name: value for name, value in here.items() if value is not None}, "the flags")
    return Settings(**{name: _convert(name, one) for name, one in given.items()})


class _Given(NamedTuple):
    """A setting as it was given."""

    value: Any
    source: str
    is_text: bool
    """Whether it is text, whatever it stands for: `"5"`, `"true"`, `"0.5"`."""


def _read(path: str) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415  slow to import, and most users have no such file

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error


def _extra(name: str, what: str) -> Callable[[Any], Any] | None:
    """Return a function of a setting's `extra`, if it has that."""
    return (Settings.__annotations__[name].__metadata__[0].extra or {}).get(what)


def _from_here(name: str, value: Any) -> Any:
    """Give a flag's value; a path, which may be relative, as it is from the current folder."""
    return os.path.abspath(value) if value and _extra(name, "check") is _absolute else value


def _convert(name: str, given: _Given) -> Any:
    """Give the value of a setting, if there is one of that name and it fits."""
    value, source, is_text = given
    if name not in Settings.__struct_fields__:
        known = ", ".join(Settings.__struct_fields__)
        raise ConfigError(f"{source}: there is no setting {name!r}; there are {known}")
    try:
        read = _extra(name, "read") if is_text else None
        found = read(value) if read else value
        settings = msgspec.convert({name: found}, Settings, strict=not is_text)
        if check := _extra(name, "check"):
            check(found)
    except (msgspec.ValidationError, ValueError) as error:
        what = str(error).partition(" - at")[0]
        raise ConfigError(f"{source}: {name} = {value!r}: {what}") from error
    return getattr(settings, name)
