"""The entries of the audit log, and the names of its files.

An entry is a JSON object on a line of its own. Its members are the fields of `Entry`, in camelCase;
a member without a value is omitted. An entry of another version of acpterm may have more members.
"""

import math
import re
import time
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

FILE_NAME: Final = "audit.jsonl"
"""The current file, to which entries are appended; `audit.jsonl.1` is the next older one, etc."""
OLD_NAME: Final = re.compile(rf"{re.escape(FILE_NAME)}\.([1-9]\d{{0,5}})")
"""Matches the names of the older files; group 1 is the number."""

LATE_S: Final = 600.0
"""By how many seconds the order of the entries may differ from the order of their times.

The time of an entry may be earlier than that of an entry before it, by at most this much: entries
are queued before they are written, and the clock may be changed.
"""


class EventKind(NamedTuple):
    """A kind of entry. The words and the colour are those of `acpterm audit` and of the page.

    `words` are the details of an entry, with `{members}` of it. Two spaces separate pieces, commas
    those in parentheses, and " | " alternatives, of which the first complete one is used. A piece
    is left out if a member that it names is missing.
    """

    meaning: str
    words: str = (
        "{signal}  ({limit}, {rule})  ended {background}  pid {pid}  by {by}  {share}  {reason}  "
        "{command}"
    )
    colour: str | None = None
    bus: str | None = None
    """The event of the host's event bus of which it is the entry, if any."""


_REQUEST: Final = (
    "{command}  ({decision}, {level}, {kind}, rule {rule}, {profile}, {provider})  in {directory}"
    "  with {variables}  {reason}"
)
EVENTS: Final[Mapping[str, EventKind]] = {
    "create": EventKind("An agent or the user requests a terminal.", _REQUEST, "green"),
    "check": EventKind("An agent asks whether a command may run, without a terminal.", _REQUEST),
    "decision": EventKind(
        "A command is allowed or denied.",
        "{decision} by {by} | {decision}  ({level}, rule {rule})  {reason}  {command}  "
        "with {variables}",
    ),
    "refused": EventKind(
        "A command is refused: by a decision, or for another reason.", colour="red"
    ),
    "started": EventKind("The program runs.", bus="created"),
    "kill": EventKind("The program is killed on request.", colour="red", bus="killed"),
    "exit": EventKind(
        "The program has ended.",
        "ended by {signal} | ended with {code} | ended  ({endedBy}, {limit})  {reason}",
        "cyan",
        "exited",
    ),
    "promote": EventKind("The user takes a terminal over from its agent.", bus="promoted"),
    "attach": EventKind(
        "The user, or a visitor of a share, attaches to a terminal.", bus="attached"
    ),
    "detach": EventKind(
        "The user, or a visitor of a share, detaches from a terminal.", bus="detached"
    ),
    "input": EventKind(
        "Input was typed. What was typed is never recorded.",
        "{bytes} typed by {by} {share} | {bytes} typed by {by}",
    ),
    "release": EventKind("The agent or the user releases a terminal.", bus="released"),
    "share": EventKind("The user makes a link to a terminal: a share."),
    "unshare": EventKind("A share is revoked, or its terminal is removed."),
    "token": EventKind("The user makes a bearer token for an agent."),
    "untoken": EventKind("The user removes an agent's bearer token."),
    "login": EventKind("A browser logs in, as the user or with a share."),
    "logout": EventKind("A browser logs out."),
    "undo": EventKind(
        "The user brings a directory back to a snapshot.",
        "{directory}  to {snapshot}  ({changes}, {failures})  {reason}",
        "yellow",
    ),
    "gap": EventKind(
        "Entries are missing: how many, from when to when, and why.",
        "{lost} lost from {from} to {to}: {reason}",
        "yellow",
    ),
}
"""The events. `make docs` writes them for the page, and for the documentation."""
DECISION_COLOURS: Final = {"allow": "green", "deny": "red"}
"""The colours of the entries `decision`."""

Text = str | None
Number = int | None


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An entry of the audit log; the `title` of each field describes it."""

    time: Annotated[str, Meta(title="When it happened: ISO 8601, UTC, with milliseconds.")]
    event: Annotated[str, Meta(title="What happened; see the table of events.")]
    worker: Annotated[int, Meta(title="Pid of the process that wrote the entry.")] = 0
    seq: Annotated[
        int,
        Meta(title="Number of the entry among those of this worker, from 1 on; a hole is a loss."),
    ] = 0
    terminal: Annotated[Text, Meta(title="Id of the terminal.")] = None
    connection: Annotated[Text, Meta(title="Id of the agent's connection.")] = None
    agent: Annotated[Text, Meta(title="Name of the agent.")] = None
    session: Annotated[Text, Meta(title="Id of the agent's session.")] = None
    command: Annotated[Text, Meta(title="The program, or shell text; secrets are redacted.")] = None
    args: Annotated[
        list[str] | None, Meta(title="The program's arguments; secrets are redacted.")
    ] = None
    directory: Annotated[Text, Meta(title="The working directory.")] = None
    provider: Annotated[Text, Meta(title="The provider, such as `bubblewrap`.")] = None
    isolation: Annotated[Text, Meta(title="`none`, `sandbox` or `container`.")] = None
    profile: Annotated[Text, Meta(title="The profile that applies.")] = None
    level: Annotated[Text, Meta(title="`safe`, `unknown` or `dangerous`.")] = None
    kind: Annotated[Text, Meta(title="What is lost, such as `work`; see policy.md.")] = None
    rule: Annotated[Text, Meta(title="The rule or pattern that matched.")] = None
    decision: Annotated[Text, Meta(title="`allow` or `deny`.")] = None
    by: Annotated[
        Text,
        Meta(
            title="Who decided (`rule`, `profile`, `editor`, `prompt`, `approvals`, `page`, "
            "`timeout`), or who did it (`agent`, `user`, `share`)."
        ),
    ] = None
    share: Annotated[Text, Meta(title="Id of the share.")] = None
    reason: Annotated[
        Text,
        Meta(
            title="What is lost; the reason of a decision, a refusal, a gap or the end of a share."
        ),
    ] = None
    pid: Annotated[Number, Meta(title="Pid of the program.")] = None
    code: Annotated[Number, Meta(title="Exit status of the program.")] = None
    signal: Annotated[Text, Meta(title="Signal that ended the program, or that it was sent.")] = (
        None
    )
    ended_by: Annotated[Text, Meta(title="What ended the program, as in `exitStatus`.")] = None
    limit: Annotated[Text, Meta(title="The limit that ended or prevented it.")] = None
    variables: Annotated[
        list[str] | None,
        Meta(title="Variables of the request that can change what its command executes."),
    ] = None
    background: Annotated[
        list[str] | None,
        Meta(title="What the command had left running and was ended: names and pids."),
    ] = None
    bytes: Annotated[Number, Meta(title="Number of bytes typed.")] = None
    snapshot: Annotated[Text, Meta(title="Id of the snapshot that an undo restored.")] = None
    changes: Annotated[Number, Meta(title="Number of changes that an undo was to make.")] = None
    failures: Annotated[Number, Meta(title="Number of those that it could not make.")] = None
    since: Annotated[Text, Meta(title="Start of a gap.")] = msgspec.field(default=None, name="from")
    to: Annotated[Text, Meta(title="End of a gap.")] = None
    lost: Annotated[Number, Meta(title="Number of entries that a gap lost.")] = None
    omitted: Annotated[
        Number, Meta(title="Number of characters left out of a command that is too long.")
    ] = None


def time_text(at: float) -> str:
    """Return a time in seconds since 1970 in the format of an entry's `time`, which sorts."""
    second, milliseconds = divmod(math.floor(at * 1000), 1000)
    return f"{second_text(second)}.{milliseconds:03d}Z"


@lru_cache(maxsize=4)
def second_text(second: int) -> str:
    """Return a time in whole seconds since 1970 as `YYYY-MM-DDTHH:MM:SS`, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


@cache
def member_name(field: str) -> str:
    """Return the name of a field in camelCase, as in an entry: `endedBy` for `ended_by`."""
    return re.sub(r"_+([a-z0-9])", lambda match: match[1].upper(), field)


def old_name(number: int) -> str:
    """Return the name of the file that was rotated `number` times; 0 is the current file."""
    return f"{FILE_NAME}.{number}" if number else FILE_NAME
