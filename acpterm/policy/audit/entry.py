"""The entries of the audit log, and the names of its files.

An entry is a JSON object on a line of its own. Its members are the fields of `Entry`, in camelCase;
a member without a value is omitted. An entry of another version of acpterm may have more members.
"""

import math
import re
import time
from functools import cache, lru_cache
from typing import Annotated, Final

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

EVENTS: Final = {
    "create": "An agent or the user requests a terminal.",
    "check": "An agent asks whether a command may run, without a terminal.",
    "decision": "A command is allowed or denied.",
    "refused": "A command is refused: by a decision, or for another reason.",
    "started": "The program runs.",
    "kill": "The program is killed on request.",
    "exit": "The program has ended.",
    "promote": "The user takes a terminal over from its agent.",
    "attach": "The user, or a visitor of a share, attaches to a terminal.",
    "detach": "The user, or a visitor of a share, detaches from a terminal.",
    "input": "Input was typed. What was typed is never recorded.",
    "release": "The agent or the user releases a terminal.",
    "share": "The user makes a link to a terminal: a share.",
    "unshare": "A share is revoked, or its terminal is removed.",
    "login": "A browser logs in, as the user or with a share.",
    "logout": "A browser logs out.",
    "gap": "Entries are missing: how many, from when to when, and why.",
}
"""The events, and what each means."""

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
        Meta(title="The reason of a decision, a refusal, a gap or the end of a share."),
    ] = None
    pid: Annotated[Number, Meta(title="Pid of the program.")] = None
    code: Annotated[Number, Meta(title="Exit status of the program.")] = None
    signal: Annotated[Text, Meta(title="Signal that ended the program, or that it was sent.")] = (
        None
    )
    ended_by: Annotated[Text, Meta(title="What ended the program, as in `exitStatus`.")] = None
    limit: Annotated[Text, Meta(title="The limit that ended or prevented it.")] = None
    background: Annotated[
        list[str] | None,
        Meta(title="What the command had left running and was ended: names and pids."),
    ] = None
    bytes: Annotated[Number, Meta(title="Number of bytes typed.")] = None
    since: Annotated[Text, Meta(title="Start of a gap.")] = msgspec.field(default=None, name="from")
    to: Annotated[Text, Meta(title="End of a gap.")] = None
    lost: Annotated[Number, Meta(title="Number of entries that a gap lost.")] = None
    omitted: Annotated[
        Number, Meta(title="Number of characters left out of a command that is too long.")
    ] = None


def time_text(at: float) -> str:
    """Return a time in seconds since 1970 in the format of an entry's `time`.

    Sorting such texts sorts the times.
    """
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
