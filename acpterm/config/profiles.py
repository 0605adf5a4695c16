"""Profiles: what agents may run, when the user is asked, where programs run, and what they may use.

A profile turns the level of a command (safe, unknown, dangerous) into a decision (allow, ask,
deny), and sets limits and the provider. There are four built-in profiles. The settings file may
define more, each a table `[profiles.NAME]` whose missing values come from the profile that `base`
names. `[[profile_for]]` selects a profile by directory or agent; the setting `profile` applies to
all other agents. An agent cannot select a profile: one that it requests applies in addition, and
makes decisions only stricter.

The command lists of a profile are a help, and not a security boundary: see docs/policy.md.
"""

import enum
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

KIB: Final = 1024
MIB: Final = 1024 * KIB

Decision: TypeAlias = Literal["allow", "ask", "deny"]
"""What acpterm does with a command: run it, ask the user, or refuse it. In order of strictness."""


class Kind(enum.StrEnum):
    """What is lost by a command that may lose something; each kind is a key of `losses`."""

    WORK = "work"
    HISTORY = "history"
    PUBLISH = "publish"
    STARTUP = "startup"
    SCHEDULE = "schedule"
    REMOTE = "remote"
    DATA = "data"
    SECRETS = "secrets"
    DOWNLOADS = "downloads"


Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Bytes = Annotated[int, Meta(ge=1)]

# Programs whose name alone is trusted. The lists of commands after it have the first words of
# commands; a check of their arguments (`policy.arguments`) applies in addition.
SAFE_COMMANDS: Final = (
    "awk", "cat", "cd", "chdir", "diff", "echo", "find", "git", "grep", "head", "help", "hostname",
    "id", "ipconfig", "tee", "ls", "netstat", "ps", "pwd", "sort", "tail", "tree", "type", "uname",
    "uniq", "wc", "which", "touch", "mkdir", "npm", "yarn", "bun", "tsc", "node", "npx", "bunx",
    "vitest",
)  # fmt: skip
# They read and print: they change, send and execute nothing.
HARMLESS_COMMANDS: Final = (
    "[", "arch", "awk", "base64", "basename", "cal", "cat", "cd", "chdir", "cksum", "cmp", "column",
    "comm", "cut", "date", "df", "diff", "dirname", "du", "echo", "egrep", "expand", "expr",
    "false", "fd", "fdfind", "fgrep", "file", "find", "fmt", "fold", "free", "grep", "head",
    "hexdump", "hostname", "id", "ipconfig", "join", "jq", "locale", "ls", "lsof", "md5sum",
    "mkdir", "netstat", "nl", "nproc", "numfmt", "od", "paste", "pgrep", "printf", "ps", "pwd",
    "readlink", "realpath", "rev", "rg", "sed", "seq", "sha1sum", "sha256sum", "sha512sum",
    "shasum", "sleep", "sort", "stat", "strings", "tac", "tail", "test", "touch", "tr", "tree",
    "true", "tty", "type", "uname", "uniq", "uptime", "wc", "whereis", "which", "whoami",
    *(f"git {command}" for command in (
        "--version", "blame", "branch", "cat-file", "check-attr", "check-ignore", "cherry",
        "config", "count-objects", "describe", "diff", "diff-files", "diff-index", "diff-tree",
        "for-each-ref", "grep", "log", "ls-files", "ls-tree", "merge-base", "name-rev",
        "range-diff", "reflog", "remote", "rev-list", "rev-parse", "shortlog", "show",
        "show-branch", "show-ref", "stash list", "stash show", "status", "submodule status", "tag",
        "version", "whatchanged", "worktree list",
    )),
    *(f"{name} --version" for name in (
        "bun", "clang", "cmake", "deno", "docker", "gcc", "gh", "java", "make", "node", "npm",
        "npx", "php", "pip", "pip3", "python", "python3", "ruby", "tsc", "uv",
    )),
    "bun -v", "docker images", "docker ps", "go version", "java -version", "node -v", "npm -v",
    "npm list", "npm ls", "php -v", "pip check", "pip freeze", "pip list", "pip show",
    "pip3 freeze", "pip3 list", "pip3 show", "python -V", "python3 -V", "systemctl status",
)  # fmt: skip
# They execute the project's own code, and nothing that is downloaded.
PROJECT_COMMANDS: Final = (
    "black", "ctest", "eslint", "jest", "make", "mypy", "ninja", "node", "nox", "phpunit",
    "prettier", "pyright", "pytest", "rspec", "ruff", "tox", "tsc", "vitest", "cmake --build",
    *(f"cargo {command}"
      for command in ("bench", "build", "check", "clippy", "doc", "fmt", "run", "test")),
    *(f"dotnet {command}" for command in ("build", "test")),
    *(f"go {command}" for command in ("build", "fmt", "test", "vet")),
    *(f"{name} {command}" for name in ("bun", "npm", "pnpm", "yarn")
      for command in ("build", "lint", "run", "start", "test")),
    *(f"{python} -m {module}" for python in ("python", "python3")
      for module in ("black", "mypy", "pytest", "ruff", "unittest")),
)  # fmt: skip
COMMAND_LISTS: Final = {
    "@harmless": HARMLESS_COMMANDS,
    "@project": PROJECT_COMMANDS,
    "@by-name": SAFE_COMMANDS,
}
"""The lists of commands that `safe_commands` of a profile can name."""
# The repetitions are possessive (`*+`) or lazy over words without spaces, so that no pattern takes
# more than linear time. `--` ends the options of rm, chmod and chown.
_OPERANDS: Final = r"(?: (?!--(?: |$))\S+)*? "
GIT: Final = r"git(?: (?:-[Cc]|--(?:git-dir|work-tree|namespace|exec-path)) \S+| -\S+)*+ "
# The name of the program belongs in `SUSPICIOUS_NAMES` of `policy.classifier` as well.
DANGEROUS_PATTERNS: Final = (
    r"dd(?: |$)",
    rf"rm{_OPERANDS}(?:-[a-zA-Z]*[rR]|--r)",
    rf"(?:chmod|chown|chgrp){_OPERANDS}(?:-[a-zA-Z]*[rR]|--rec)",
    r"rmdir(?: |$)",
    r"find(?: \S+)*? -(?:delete|exec|ok)",
    r"(?:sudo|sudoedit|doas|pkexec|su|runuser)(?: |$)",
    r"(?:del|format|mkfs(?:\.\w+)?|fdisk|wipefs|shred)(?: |$)",
    r"(?:reboot|shutdown|halt|poweroff)(?: |$)",
    r"systemctl(?: -\S+)*+ (?:reboot|poweroff|halt|kexec)(?: |$)",
    rf"{GIT}reset(?: |$)",
    rf"{GIT}clean(?: \S+)*? (?:-[a-zA-Z]*f|--f)",
    rf"{GIT}rm{_OPERANDS}-[a-zA-Z]*r",
)
POOL_COMMANDS: Final = (
    "rm", "sudo", "chmod", "chown", "mkfs", "dd", "fdisk", "shutdown", "reboot", "halt", "poweroff",
    "kill", "killall", "pkill",
)  # fmt: skip
POOL_PATTERNS: Final = (
    r"rm -rf /",
    r">\s*/dev/(?!(?:null|stdout|stderr)\b)",
    r"\|\s*(sh|bash)(?![\w.-])",
    r"`",
    r"\$\(",
)


class Limits(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The limits of a profile. None means that there is no such limit."""

    terminals: Annotated[Count | None, Meta(title="Running terminals of all agents together.")] = (
        None
    )
    session_terminals: Annotated[Count | None, Meta(title="Running terminals of a session.")] = None
    agent_terminals: Annotated[Count | None, Meta(title="Running terminals of one agent.")] = None
    starts_per_minute: Annotated[
        Count | None, Meta(title="Terminals that one agent may start in 60 seconds.")
    ] = None
    idle: Annotated[
        Seconds | None,
        Meta(title="Seconds without output and input after which a terminal is killed."),
    ] = None
    wall: Annotated[
        Seconds | None, Meta(title="Seconds after its start when a terminal is killed.")
    ] = None
    output_bytes: Annotated[
        Bytes | None, Meta(title="Maximum of a terminal's `outputByteLimit`, in bytes.")
    ] = None
    memory: Annotated[
        Bytes | None, Meta(title="Memory of a terminal's programs together, in bytes.")
    ] = None
    cpu: Annotated[
        Annotated[float, Meta(ge=0.01)] | None,
        Meta(title="CPUs that a terminal's programs may use together, such as 1.5."),
    ] = None
    processes: Annotated[
        Count | None, Meta(title="Processes and threads of a terminal's programs together.")
    ] = None
    open_files: Annotated[Count | None, Meta(title="Open files of each program.")] = None
    file_size: Annotated[
        Bytes | None, Meta(title="Size of a file that a program may write, in bytes.")
    ] = None
    disk_io: Annotated[
        Bytes | None,
        Meta(title="Bytes per second that a terminal's programs may read, and write, on a disk."),
    ] = None


class Losses(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The decisions on kinds of loss. None means that of `dangerous`."""

    work: Annotated[
        Decision | None,
        Meta(title="Throws away work: changes, untracked files, a stash, an overwritten file."),
    ] = None
    history: Annotated[
        Decision | None, Meta(title="Rewrites or deletes commits, such as a forced push.")
    ] = None
    publish: Annotated[
        Decision | None, Meta(title="Publishes a package, an image, a release or a site.")
    ] = None
    startup: Annotated[
        Decision | None,
        Meta(title="Writes files that programs execute or trust: start-up files, hooks, keys."),
    ] = None
    schedule: Annotated[
        Decision | None, Meta(title="Schedules a command, or makes one start by itself.")
    ] = None
    remote: Annotated[
        Decision | None, Meta(title="Deletes on other machines: clusters, clouds, branches.")
    ] = None
    data: Annotated[
        Decision | None, Meta(title="Destroys data: databases, volumes, backups, disks.")
    ] = None
    secrets: Annotated[
        Decision | None, Meta(title="Reads keys, tokens or passwords, or shows them.")
    ] = None
    downloads: Annotated[
        Decision | None, Meta(title="Runs what comes from the net, such as a script from `curl`.")
    ] = None


class Profile(Struct, frozen=True, kw_only=True):
    """A profile with all its values, as `resolve` returns it."""

    name: str
    safe: Annotated[Decision, Meta(title="Decision on safe commands.")] = "allow"
    unknown: Annotated[Decision, Meta(title="Decision on unknown commands.")] = "allow"
    dangerous: Annotated[Decision, Meta(title="Decision on dangerous commands.")] = "ask"
    unknown_timeout: Annotated[
        float,
        Meta(ge=0, title="Seconds to wait for the answer about an unknown command; 0: no limit."),
    ] = 0.0
    dangerous_timeout: Annotated[
        float,
        Meta(ge=0, title="Seconds to wait for the answer about a dangerous command; 0: no limit."),
    ] = 0.0
    unattended: Annotated[
        Literal["refuse", "wait"],
        Meta(
            title="What happens to a question while no client can ask the user: no editor, no "
            "prompt, and no `acpterm approvals --follow`. A question waits as long as the agent's "
            "request, unless the only client that could ask has declined it, there is no daemon, "
            "or the daemon was started with the environment variable CI."
        ),
    ] = "wait"
    provider: Annotated[
        str | None,
        Meta(
            title="Provider of the terminals, or a place such as `ssh:NAME`; by default that of "
            "the settings."
        ),
    ] = None
    places: Annotated[
        list[str],
        Meta(title="Patterns (`*`, `?`) of the places that an agent may request, such as `ssh:*`."),
    ] = msgspec.field(default_factory=list)
    network: Annotated[
        bool, Meta(title="Allow programs in a sandbox or container to use the network.")
    ] = False
    safe_commands: Annotated[
        list[str],
        Meta(
            title="Safe commands: names of programs, first words such as `git status`, and lists: "
            "`@harmless`, `@project`, `@by-name`."
        ),
    ] = msgspec.field(default_factory=lambda: list(SAFE_COMMANDS))
    dangerous_patterns: Annotated[
        list[str],
        Meta(
            title="Regular expressions of dangerous commands, each matched at the beginning of a "
            "part: the program's name and its arguments, separated by spaces."
        ),
    ] = msgspec.field(default_factory=lambda: list(DANGEROUS_PATTERNS))
    blocked_commands: Annotated[
        list[str], Meta(title="Names of programs that are always refused.")
    ] = msgspec.field(default_factory=list)
    blocked_patterns: Annotated[
        list[str],
        Meta(title="Regular expressions of refused commands, searched in the whole line."),
    ] = msgspec.field(default_factory=list)
    short_messages: Annotated[
        bool, Meta(title="Refuse with one fixed sentence, without the reason and the rule.")
    ] = False
    unenforceable_limits: Annotated[
        Literal["refuse", "warn"],
        Meta(
            title="What happens if a limit cannot be enforced on this machine: refuse the "
            "terminal, or start it with a warning in the log and in its description."
        ),
    ] = "refuse"
    limits: Annotated[Limits, Meta(title="Limits of the terminals.")] = Limits()
    losses: Annotated[Losses, Meta(title="Decisions on kinds of loss.")] = Losses()

    def decision_on(self, kind: Kind) -> Decision:
        """Return the decision on a command that loses something of this kind."""
        found: Decision | None = getattr(self.losses, kind)
        return found or self.dangerous


class ProfileTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table `[profiles.NAME]` of the settings file: the values that differ from `base`."""

    base: Annotated[str, Meta(title="Profile from which the missing values come.")] = "guarded"
    safe: Decision | UnsetType = UNSET
    unknown: Decision | UnsetType = UNSET
    dangerous: Decision | UnsetType = UNSET
    unknown_timeout: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    dangerous_timeout: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    unattended: Literal["refuse", "wait"] | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    places: list[str] | UnsetType = UNSET
    network: bool | UnsetType = UNSET
    safe_commands: list[str] | UnsetType = UNSET
    dangerous_patterns: list[str] | UnsetType = UNSET
    blocked_commands: list[str] | UnsetType = UNSET
    blocked_patterns: list[str] | UnsetType = UNSET
    short_messages: bool | UnsetType = UNSET
    unenforceable_limits: Literal["refuse", "warn"] | UnsetType = UNSET
    limits: Limits | UnsetType = UNSET
    losses: Losses | UnsetType = UNSET


class ProfileFor(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table `[[profile_for]]`: the profile of agents in a directory, or of some agents.

    A table applies if all its patterns match. The first table that applies wins.
    """

    profile: Annotated[str, Meta(title="Name of the profile.")]
    directory: Annotated[
        str | None,
        Meta(
            title="Pattern (`*`, `?`) of the directory that the agent works in, or of one above "
            "it; `~` is allowed."
        ),
    ] = None
    agent: Annotated[
        str | None,
        Meta(
            title="Pattern of the name of the agent's program, such as `codex*`. If the program "
            "cannot be determined, no command is run."
        ),
    ] = None


BUILTIN: Final[Mapping[str, Profile]] = {
    profile.name: profile
    for profile in (
        Profile(name="open", dangerous="allow"),
        Profile(name="guarded"),
        Profile(name="confirm", unknown="ask", unknown_timeout=10.0, safe_commands=["@harmless"]),
        Profile(
            name="pool",
            dangerous="deny",
            dangerous_patterns=[],
            blocked_commands=[*POOL_COMMANDS, "eval"],
            blocked_patterns=list(POOL_PATTERNS),
            short_messages=True,
            limits=Limits(agent_terminals=5, starts_per_minute=3, idle=300.0),
            # It denies what its lists name, and nothing else.
            losses=msgspec.convert(dict.fromkeys(map(str, Kind), "allow"), Losses),
        ),
    )
}


def lowest(limits: Iterable[Limits]) -> Limits:
    """Return limits that are as strict as all of `limits`: the lowest value of each limit."""
    found: dict[str, float] = {}
    for one in limits:
        for name, value in msgspec.structs.asdict(one).items():
            if value is not None:
                found[name] = min(value, found.get(name, value))
    return msgspec.convert(found, Limits)


def resolve(tables: Mapping[str, ProfileTable]) -> dict[str, Profile]:
    """Return all profiles by name. Raises `ValueError` for a bad base or pattern."""
    # A table may replace a built-in profile, and have it as its base by the same name.
    found: dict[str, Profile] = {}
    for name in (*BUILTIN, *tables):
        found[name] = _resolve(name, tables, ())
    return found


def _resolve(name: str, tables: Mapping[str, ProfileTable], seen: tuple[str, ...]) -> Profile:
    table = tables.get(name)
    if table is None or name in seen:
        if name in BUILTIN:
            return BUILTIN[name]
        known = ", ".join(sorted({*BUILTIN, *tables}))
        problem = "is its own base" if name in seen else "is not defined"
        raise ValueError(f"profile {name!r} {problem}: the profiles are {known}")
    base = _resolve(table.base, tables, (*seen, name))
    values = {
        field: value
        for field in table.__struct_fields__
        if field != "base" and (value := getattr(table, field)) is not UNSET
    }
    for key in ("limits", "losses"):
        if key in values:
            own = msgspec.structs.asdict(values[key])
            kept = {name: value for name, value in own.items() if value is not None}
            values[key] = msgspec.structs.replace(getattr(base, key), **kept)
    for entry in values.get("safe_commands", ()):
        if entry.startswith("@") and entry not in COMMAND_LISTS:
            raise ValueError(
                f"profile {name!r} has the list {entry!r} in safe_commands: the lists are "
                f"{', '.join(COMMAND_LISTS)}"
            )
    for key in ("dangerous_patterns", "blocked_patterns"):
        for pattern in values.get(key, ()):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"profile {name!r} has the pattern {pattern!r} in {key}, which is no regular "
                    f"expression: {error}"
                ) from error
    return msgspec.structs.replace(base, name=name, **values)
