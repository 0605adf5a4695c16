"""The user's requests about what agents may run, and what they did: policy, audit log, recordings.

Times are in milliseconds since 1970, durations (`…_ms`) in milliseconds, sizes in bytes.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Raw

from acpterm.acp.agent_api import CheckResponse, Natural
from acpterm.acp.base import Wire

AUDIT_ENTRIES_MAX = 500
_TEXT_CHARS_MAX = 1024

Filter: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=_TEXT_CHARS_MAX, description="the beginning of it")
]
Place: TypeAlias = Annotated[
    str, Meta(max_length=_TEXT_CHARS_MAX, description="a place that an earlier response contained")
]
Milliseconds: TypeAlias = Annotated[
    int, Meta(ge=0, le=10**14, description="milliseconds since 1970")
]


class UserCheckRequest(Wire, omit_defaults=True):
    """The params of the user's ``_acpterm/command/check``: judge a command without running it.

    `command` and `args` are as in ``terminal/create``: without `args`, `command` is a line for the
    shell. `cwd` is the directory of the client by default. Without `profile`, the command is judged
    by the profile of agents that work in `cwd`; profiles that the settings select by the name of an
    agent are not used.
    """

    command: Annotated[str, Meta(description="the command to judge")]
    args: list[str] | None = None
    cwd: Annotated[str | None, Meta(description="an absolute path")] = None
    profile: str | None = None


class UserCheckResponse(CheckResponse):
    """The response to the user's ``_acpterm/command/check``.

    `decision` says what would happen if an agent ran the command: `allow`, `ask` or `deny`. `parts`
    are the commands of the line, each with its level, and why it is not safe; a part without words
    is about the line as a whole. `reason` says why the command is not allowed or not safe. `rule`
    is the rule or list that has decided; it is absent if the level has decided. `kind` is what the
    command would lose, if that is the reason. `prefix` has the
    first words of the part that the user would be asked about: an answer with the scope `always`
    would apply to commands with the same `prefix`. `prefix` is null if the user would not be asked,
    or if an answer that allows the command could not have the scope `always`.
    """

    prefix: list[str] | None = None


class ProfileInfo(Wire):
    """A profile, with its decisions on safe, unknown and dangerous commands."""

    name: str
    safe: Literal["allow", "ask", "deny"]
    unknown: Literal["allow", "ask", "deny"]
    dangerous: Literal["allow", "ask", "deny"]


class ProfilesResponse(Wire):
    """The response to ``_acpterm/profile/list``; `selected` is the name of the default profile."""

    selected: str
    profiles: list[ProfileInfo]


class AuditReadRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/audit/read``: read entries of the audit log, the newest first.

    At most `limit` entries are returned, from the time `since` to the time `until`. `session`,
    `agent` and `terminal` each select entries by the beginning of an id or a name. `event` and
    `decision` select entries that have exactly this event or decision. Entries of the event `gap`,
    where the log is incomplete, are always returned. To read older entries, repeat the request with
    `before` set to the `next` of the response. To read newer entries, repeat the request with
    `after` set to the `newest` of the first response.
    """

    limit: Annotated[int, Meta(ge=1, le=AUDIT_ENTRIES_MAX)] = 100
    since: Milliseconds | None = None
    until: Milliseconds | None = None
    session: Filter | None = None
    agent: Filter | None = None
    terminal: Filter | None = None
    event: Annotated[str, Meta(max_length=_TEXT_CHARS_MAX)] | None = None
    decision: Annotated[str, Meta(max_length=_TEXT_CHARS_MAX)] | None = None
    before: Place | None = None
    after: Place | None = None


class AuditReadResponse(Wire):
    """The response to ``_acpterm/audit/read``.

    `entries` are the selected entries, the newest first; policy.md describes their members.

    To get older entries, send another request with the value of `next` in its member `before`.
    `next` is null if no older entries are left. One request searches only a part of the log, so
    `entries` may be short or empty although `next` is not null.

    To get entries that are written later, send a request with the value of `newest` in its member
    `after`. `newest` is null if the log is empty, and may be null if the request had `before`.
    `enabled` says whether the daemon writes the log.
    """

    entries: list[Raw]
    next: str | None
    newest: str | None
    enabled: bool


class RecordingInfo(Wire):
    """A recording of a terminal, an asciicast file.

    `owner` says who created the terminal. `command` is the title of the recording. `duration_ms`,
    `command`, `cols` and `rows` are null if the file cannot be parsed. `recording` is true while
    the file is written.
    """

    name: str
    terminal_id: str
    owner: Literal["agent", "user"]
    started_at: int
    bytes: int
    recording: bool
    command: str | None
    cols: int | None
    rows: int | None
    duration_ms: int | None


class RecordingsResponse(Wire):
    """The response to ``_acpterm/recording/list``: the recordings, the newest first.

    `omitted` is the number of recordings that are not listed, because there are too many. `enabled`
    says whether the daemon records new terminals.
    """

    recordings: list[RecordingInfo]
    omitted: int
    enabled: bool


class RecordingReadRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/recording/read``: read a piece of a recording.

    `name` is a name that ``recording/list`` has returned. `offset` is where the piece begins, in
    bytes from the beginning of the file.
    """

    name: Annotated[str, Meta(max_length=_TEXT_CHARS_MAX)]
    offset: Natural = 0


class RecordingReadResponse(Wire):
    """The response to ``_acpterm/recording/read``: a piece of an asciicast.

    `data` may end in the middle of a line. The next piece begins at `offset`. `bytes` is the size
    of the file. If `offset` equals `bytes`, this is the last piece.
    """

    data: str
    offset: int
    bytes: int
