"""The settings of acpterm: one Struct, with the type, range and default of each setting.

`docs/settings.md` is generated from the Struct: its types, defaults and the `title` of each field.
"""

import os
import shlex
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from acpterm import keys
from acpterm.config.encodings import Encoding
from acpterm.config.http import check_address, check_origins, is_address, parse_address
from acpterm.config.places import Place, SlurmPlace, SshPlace, check_places
from acpterm.config.profiles import ProfileFor, ProfileTable, resolve
from acpterm.config.tools import AtTimeout, Characters, Seconds, ToolsFor

KIB = 1024
MIB = 1024 * KIB


def require_absolute(path: str) -> None:
    """Raise `ValueError` if `path` is relative: it would depend on the current directory."""
    if not os.path.isabs(path):
        raise ValueError("is not an absolute path")


def _check_shell(path: str) -> None:
    if path != "auto":
        require_absolute(path)


def _parse_variables(value: str | Mapping[str, str]) -> dict[str, str]:
    """Return variables, given as a mapping or as text such as `A=1 B=2`. Raises `ValueError`."""
    variables = dict(value) if isinstance(value, Mapping) else {}
    for word in shlex.split(value) if isinstance(value, str) else ():
        name, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is not NAME=VALUE")
        variables[name] = text
    for name, text in variables.items():
        if not name or "=" in name or "\0" in name + text:
            raise ValueError(f"no environment can hold a variable {name!r}")
    return variables


# A setting's `extra` may have two functions. `check` raises `ValueError` for an invalid value of
# the right type. `read` converts the value of an environment variable to the setting's type.
_PATH = {"check": require_absolute}
_SHELL = {"check": _check_shell}
_KEYS = {"check": keys.sequence}
_VARIABLES = {"check": _parse_variables, "read": _parse_variables}
_PROFILES = {"check": resolve}
_PLACES = {"check": check_places}
_ORIGINS = {"check": check_origins, "read": str.split}


def _check_address(value: str | None) -> None:
    """Raise `ValueError` if `value` is not an `ADDRESS:PORT` to listen on; None is valid."""
    if value is not None:
        parse_address(value)


_ADDRESS = {"check": _check_address}


def _check_registry(value: str | None) -> None:
    if value is not None:
        (check_address if is_address(value) else require_absolute)(value)


_REGISTRY = {"check": _check_registry}


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All settings of acpterm; the `title` of each field describes the setting."""

    socket: Annotated[
        str | None,
        Meta(
            title="Path of the socket for agents, absolute. By default `acpterm/agent.sock` in the "
            "user's runtime directory, or `/tmp/acpterm-UID/agent.sock` without one.",
            extra=_PATH,
        ),
    ] = None
    user_socket: Annotated[
        str | None,
        Meta(
            title="Path of the socket for the user's commands, absolute. By default in the "
            "directory of `socket`: `user.sock` for `agent.sock`, else its name and `.user`.",
            extra=_PATH,
        ),
    ] = None
    detach_key: Annotated[
        str,
        Meta(
            title="Key, or sequence of keys, that detaches from a terminal: `C-\\`, `C-b d`. Key "
            "names are as in `acpterm send --key`.",
            extra=_KEYS,
        ),
    ] = "C-\\"
    clipboard: Annotated[
        bool,
        Meta(
            title="Allow programs to write to the clipboard of an attached window (OSC 52). They "
            "can never read it."
        ),
    ] = False
    on_question: Annotated[
        str | None,
        Meta(
            title="Command that runs when a command of an agent must be approved, such as "
            '`notify-send acpterm "$1"`. The shell runs it; `$1` is a sentence, and stdin has '
            "the question as JSON. By default, questions that no client shows are notified by "
            "`notify-send`, if there is one, and by the bell of attached windows; an empty text "
            "turns that off."
        ),
    ] = None
    on_waiting: Annotated[
        str | None,
        Meta(
            title="Command that runs when a program begins to wait for input; `$1` is a sentence, "
            "and stdin has the terminal as JSON."
        ),
    ] = None
    on_end: Annotated[
        str | None,
        Meta(
            title="Command that runs when a program has ended; `$1` is a sentence, and stdin has "
            "the terminal as JSON."
        ),
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(title="Lowest level of messages to log.")
    ] = "info"
    log_format: Annotated[Literal["text", "json"], Meta(title="Format of log lines on stderr.")] = (
        "text"
    )
    max_message_bytes: Annotated[
        int, Meta(ge=KIB, title="Maximum length of a line from a peer, in bytes.")
    ] = 64 * MIB
    cols: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            title="Default width of a terminal, in cells: see [protocol.md](protocol.md#width).",
        ),
    ] = 200
    rows: Annotated[int, Meta(ge=1, le=10_000, title="Default height of a terminal, in cells.")] = (
        40
    )
    encoding: Annotated[
        Encoding,
        Meta(
            title="Encoding of what programs print and read. `auto` finds the encoding of lines "
            "that are not UTF-8: see [protocol.md](protocol.md#encodings)."
        ),
    ] = "utf-8"
    output_bytes: Annotated[
        int, Meta(ge=0, title="Text retained of a terminal whose creator sets no limit, in bytes.")
    ] = MIB
    max_output_bytes: Annotated[
        int, Meta(ge=0, title="Maximum of a creator's `outputByteLimit`, in bytes.")
    ] = 16 * MIB
    raw_bytes: Annotated[
        int, Meta(ge=0, title="Raw output retained of each terminal, in bytes.")
    ] = MIB
    kill_grace: Annotated[
        float,
        Meta(ge=0, le=60, title="Seconds between SIGTERM and SIGKILL when a terminal is killed."),
    ] = 2.0
    shell: Annotated[
        str,
        Meta(
            title="Path of the POSIX shell that runs shell text, with `-c`; absolute. `auto` is "
            "bash if it is installed, else `/bin/sh`.",
            extra=_SHELL,
        ),
    ] = "auto"
    signal_exit_code: Annotated[
        Literal["auto"] | bool,
        Meta(
            title="Report 128+n as `exitCode` on death by signal n, instead of null. `auto` does "
            "so for agents that are known to treat null as success."
        ),
    ] = "auto"
    agent_env: Annotated[
        dict[str, str],
        Meta(
            title="Environment variables for agents' terminals. They override the pagers and "
            "editors that acpterm sets there, and the agent's own variables override them. In the "
            'file a table: `agent_env = { GH_PAGER = "less" }`; in the environment words: '
            "`GH_PAGER=less LESS=`.",
            extra=_VARIABLES,
        ),
    ] = msgspec.field(default_factory=dict)
    disable_editors: Annotated[
        bool,
        Meta(
            title="Set `GIT_EDITOR` and `GIT_SEQUENCE_EDITOR` to `true` in agents' terminals, so "
            "that `git commit` and `git rebase --continue` do not wait in an editor."
        ),
    ] = True
    tracking: Annotated[
        Literal["auto", "cgroup", "subreaper"],
        Meta(title="How a terminal's processes are tracked. `auto` uses cgroups if available."),
    ] = "auto"
    keep_released: Annotated[
        int,
        Meta(
            ge=0,
            title="Number of released terminals that stay readable for the user, of those that a "
            "tool call showed; and, separately, of the user's own terminals that have ended. "
            "Terminals of agents never displace the user's.",
        ),
    ] = 100
    shown_lines: Annotated[
        int,
        Meta(
            ge=1,
            title="Number of last lines of a terminal that an editor gets as text "
            "(`acpterm proxy`).",
        ),
    ] = 40
    shown_bytes: Annotated[
        int, Meta(ge=100, title="Maximum size of the text of `shown_lines`, in bytes.")
    ] = 8 * KIB
    idle_exit: Annotated[
        float,
        Meta(
            ge=0,
            title="Seconds without a connection and without a held terminal after which a daemon "
            "that was started on demand exits (`serve --when-needed`). A terminal of the user's "
            "own is held until `acpterm rm`, or until it is dropped after its end.",
        ),
    ] = 600.0
    resume_timeout: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            title="Seconds for which a client tries to reconnect when it loses the connection to "
            "the daemon, and for which the daemon keeps the terminals of an agent whose connection "
            "was lost because the daemon's worker died. With 0 clients do not reconnect.",
        ),
    ] = 30.0
    background: Annotated[
        Literal["session", "terminal"],
        Meta(
            title="How long what a command of an agent leaves in the background runs on after the "
            "command has exited and the agent has released its terminal: until the agent's "
            "connection ends, or not at all. An agent can request `terminal` for one command."
        ),
    ] = "session"
    keep_released_bytes: Annotated[
        int,
        Meta(
            ge=0,
            title="Maximum output that is retained of the terminals of `keep_released`, in bytes; "
            "separately for each of the two kinds.",
        ),
    ] = 64 * MIB
    keep_released_age: Annotated[
        float, Meta(ge=0, title="Seconds for which terminals of `keep_released` stay readable.")
    ] = 24 * 3600.0
    record: Annotated[
        bool, Meta(title="Record the output of every terminal to an asciicast file.")
    ] = False
    record_input: Annotated[
        bool,
        Meta(
            title="Record input as well, but never while the terminal's echo is off. That excludes "
            "passwords, but also all input in shells and editors that echo it themselves."
        ),
    ] = False
    record_dir: Annotated[
        str | None,
        Meta(
            title="Directory of the recordings, an absolute path that only this user can write to. "
            "By default `acpterm/recordings` in the user's state directory.",
            extra=_PATH,
        ),
    ] = None
    record_bytes: Annotated[
        int, Meta(ge=64 * KIB, title="Maximum size of a recording, in bytes.")
    ] = 16 * MIB
    record_files: Annotated[
        int,
        Meta(
            ge=1,
            title="Number of recordings to keep of the user's terminals, and separately of agents' "
            "terminals. The oldest are removed first, except for recordings in progress.",
        ),
    ] = 100
    profile: Annotated[
        str,
        Meta(
            title="Profile of agents' terminals: `open`, `guarded`, `confirm`, `pool`, or one of "
            "`profiles`. It decides what agents may run, and under which limits: see "
            "[policy.md](policy.md)."
        ),
    ] = "guarded"
    profiles: Annotated[
        dict[str, ProfileTable],
        Meta(
            title="More profiles; in the file a table `[profiles.NAME]` for each: see "
            "[policy.md](policy.md).",
            extra=_PROFILES,
        ),
    ] = msgspec.field(default_factory=dict)
    profile_for: Annotated[
        list[ProfileFor],
        Meta(
            title="Profiles by directory and agent; in the file a table `[[profile_for]]` for "
            "each: see [policy.md](policy.md)."
        ),
    ] = msgspec.field(default_factory=list)
    rules: Annotated[
        str | None,
        Meta(
            title="Path of the file with the rules about commands, absolute. By default "
            "`rules.toml` beside `config.toml`.",
            extra=_PATH,
        ),
    ] = None
    registry: Annotated[
        str | None,
        Meta(
            title="Registry of the agents that `acpterm proxy` and `acpterm prompt` start by name: "
            "the absolute path of a file, or an `https://` address. See "
            "[proxy.md](proxy.md#agents-by-name).",
            extra=_REGISTRY,
        ),
    ] = None
    provider: Annotated[
        str,
        Meta(
            title="Where agents' terminals run, unless the profile says otherwise: `local`, "
            "`landlock`, `bubblewrap`, `podman`, `docker`, or a place such as `ssh:NAME`."
        ),
    ] = "local"
    ssh: Annotated[
        dict[str, SshPlace],
        Meta(
            title="Hosts on which terminals can run; in the file a table `[ssh.NAME]` for each: "
            "see [providers.md](providers.md).",
            extra=_PLACES,
        ),
    ] = msgspec.field(default_factory=dict)
    slurm: Annotated[
        dict[str, SlurmPlace],
        Meta(
            title="Slurm clusters on which terminals can run; in the file a table `[slurm.NAME]` "
            "for each: see [providers.md](providers.md).",
            extra=_PLACES,
        ),
    ] = msgspec.field(default_factory=dict)
    image: Annotated[
        str | None, Meta(title="Image of the containers of the providers `podman` and `docker`.")
    ] = None
    agents_read_user_terminals: Annotated[
        bool,
        Meta(
            title="Let agents list and read the terminals that you have created, such as one in "
            "which you run a build. They can never type into them or end them."
        ),
    ] = False
    undo: Annotated[
        bool,
        Meta(
            title="Keep an agent's directory before each command that may change something, so "
            "that `acpterm undo` brings it back: see [undo.md](undo.md). Only the daemon does that."
        ),
    ] = True
    audit: Annotated[
        bool, Meta(title="Record what agents and the user do with terminals (`acpterm audit`).")
    ] = True
    audit_dir: Annotated[
        str | None,
        Meta(
            title="Directory of the audit log, an absolute path. By default `acpterm/audit` in the "
            "user's state directory.",
            extra=_PATH,
        ),
    ] = None
    audit_file_bytes: Annotated[
        int, Meta(ge=64 * KIB, title="Size of a file of the audit log before rotation, in bytes.")
    ] = 16 * MIB
    audit_files: Annotated[
        int,
        Meta(ge=1, title="Number of files of the audit log to keep, including the current one."),
    ] = 10
    tool_min_interval: Annotated[
        Seconds, Meta(title="Minimum time that a tool waits for output of a terminal, in seconds.")
    ] = 1.0
    tool_settle_interval: Annotated[
        Seconds,
        Meta(title="Seconds without output after which a tool stops waiting for more output."),
    ] = 2.0
    tool_max_interval: Annotated[
        Seconds,
        Meta(title="Maximum time that a tool waits while output still arrives, in seconds."),
    ] = 30.0
    tool_crop_output: Annotated[
        Characters,
        Meta(
            title="Maximum number of characters of output that a tool returns at once: the first "
            "20 % and the last 80 %."
        ),
    ] = 10_000
    tool_timeout_seconds: Annotated[
        Seconds, Meta(title="Time limit in seconds of a command that a tool runs.")
    ] = 60.0
    tool_at_timeout: Annotated[
        AtTimeout,
        Meta(
            title="What happens to a command at its time limit: it continues in the background, "
            "or it is killed."
        ),
    ] = "continue"
    tool_structured: Annotated[
        bool,
        Meta(
            title="Whether results of tools have structured content besides the text. It says the "
            "same, and most clients show a model only this JSON, or both."
        ),
    ] = False
    tools_for: Annotated[
        list[ToolsFor],
        Meta(
            title="Settings of the tools by agent; in the file a table `[[tools_for]]` for each: "
            "see [mcp.md](mcp.md)."
        ),
    ] = msgspec.field(default_factory=list)
    mcp_elicitation_approves: Annotated[
        bool,
        Meta(
            title="Let an MCP client answer questions about commands, with what it shows the user "
            "(elicitation). The client runs the agent, and can answer by itself: only turn this on "
            "for clients that you trust like yourself. The daemon reads this setting."
        ),
    ] = False
    http: Annotated[
        str | None,
        Meta(
            title="Address of the HTTP server, `ADDRESS:PORT`; with port 0 the system chooses the "
            "port. By default there is no server until `acpterm open` starts one. See "
            "[web.md](web.md).",
            extra=_ADDRESS,
        ),
    ] = None
    http_remote: Annotated[
        bool,
        Meta(
            title="Let the HTTP server listen on an address that other machines can reach. This "
            "also needs TLS: `http_certificate` and `http_key`, or a proxy that `http_origins` "
            "names."
        ),
    ] = False
    http_origins: Annotated[
        list[str],
        Meta(
            title="Other origins under which browsers reach the HTTP server, such as "
            "`https://terminals.example.org` of a proxy, or `http://localhost:9000` of `ssh -L`. "
            "In the environment separated by spaces.",
            extra=_ORIGINS,
        ),
    ] = msgspec.field(default_factory=list)
    http_certificate: Annotated[
        str | None,
        Meta(
            title="Path of the HTTP server's certificate chain (PEM), absolute. Without it the "
            "server uses no TLS.",
            extra=_PATH,
        ),
    ] = None
    http_key: Annotated[
        str | None,
        Meta(title="Path of the key of `http_certificate` (PEM), absolute.", extra=_PATH),
    ] = None

    @property
    def places(self) -> dict[str, Place]:
        """All places, by the name of their provider, such as `ssh:build1`."""
        return {
            f"{kind}:{name}": place
            for kind, places in (("ssh", self.ssh), ("slurm", self.slurm))
            for name, place in places.items()
        }
