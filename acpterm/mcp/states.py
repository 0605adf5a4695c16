"""The state of a session, in the first line of a result and in its structured content.

The line says what the program does, and which calls can follow, as text that the model can copy:
``[running 10.0 s, waits for input at "Continue? " · terminal_continue {…} · …]``.
"""

import json
import re
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from acpterm.acp.agent_meta import BackgroundProcess
from acpterm.api.results import Exit, Stopped
from acpterm.client.sanitize import one_line
from acpterm.client.user.format import background_line
from acpterm.mcp.cropping import Cropped
from acpterm.mcp.sessions import Session

State: TypeAlias = Literal[
    "running", "waiting_for_input", "stopped", "exited", "killed", "approval_pending"
]
PROMPT_CHARS_MAX: Final = 60
# How many processes of a background the first line names.
_NAMED_MAX: Final = 3
_SECRET_WORDS: Final = ("password", "passphrase", "passcode", "pin", "secret", "token", "otp")


class SessionResult(Struct, kw_only=True, omit_defaults=False):
    """The structured content of a result about one session.

    `status` repeats the first line of the result, which has the state: some clients show the model
    only the structured content.
    """

    id: Annotated[str, Meta(description="the id of the terminal session")]
    status: Annotated[str, Meta(description="what the program does, and what can be done next")]
    state: Annotated[State, Meta(description="what the program does")]
    output: Annotated[str, Meta(description="the output, cropped")] = ""
    position: Annotated[int, Meta(description="where the next read begins, in bytes of output")] = 0
    complete: Annotated[bool, Meta(description="whether the program has ended")] = False
    exitCode: Annotated[int | None, Meta(description="exit code")] = None  # noqa: N815
    signal: Annotated[str | None, Meta(description="the signal that ended the program")] = None
    endedBy: Annotated[  # noqa: N815
        str | None,
        Meta(description="exited, agent, user, timeout, idle, limit, disconnect or lost"),
    ] = None
    cwd: Annotated[str, Meta(description="the directory of the program")] = ""
    wallSeconds: Annotated[float, Meta(description="run time in seconds")] = 0.0  # noqa: N815
    totalBytes: Annotated[int, Meta(description="bytes of output so far")] = 0  # noqa: N815
    truncated: Annotated[bool, Meta(description="whether output was left out or is lost")] = False
    background: Annotated[
        list[BackgroundProcess], Meta(description="what the program has left running")
    ] = []


class View(Struct, kw_only=True):
    """What a result shows of a session.

    `text` is all new output, from the position `since` to `position`, without the `lost` bytes that
    are no longer retained. `cropped` is the part of `text` that is shown. `exit` is None while the
    program runs. `is_waiting` says whether the program waits for input, `hides_input` whether it
    does not echo the input, `waiting_program` which one waits: `vim waits on COMMIT_EDITMSG`.
    `stopped` is a program that is stopped for lack of the terminal.
    `prompt` is the last line of output. `matched` is the text that the pattern of a wait has
    matched.
    """

    text: str
    cropped: Cropped
    since: int
    position: int
    lost: int = 0
    exit: Exit | None = None
    is_waiting: bool = False
    hides_input: bool = False
    stopped: Stopped | None = None
    waiting_program: str | None = None
    prompt: str = ""
    matched: str | None = None

    @property
    def is_secret(self) -> bool:
        """Whether the program probably waits for a password."""
        prompt = self.prompt.lower()
        is_named = any(re.search(rf"\b{word}\b", prompt) for word in _SECRET_WORDS)
        return self.is_waiting and (self.hides_input or is_named)


def state_of(view: View) -> State:
    """Return the state of the session in `view`.

    If the session's program has ended, the state is `exited` if the program ended by itself,
    otherwise `killed`.
    """
    if view.exit is None:
        if view.stopped is not None:
            return "stopped"
        return "waiting_for_input" if view.is_waiting else "running"
    return "exited" if view.exit.ended_by in (None, "exited") else "killed"


def state_line(session: Session, view: View, *, next_calls: "tuple[str, ...]", stop: str) -> str:
    """Return the first line of a result.

    While the program runs, the line suggests `next_calls`, unless the program probably waits for a
    password. If the program has left something running, `stop` is the call that ends that.
    """
    parts = [_what(session, view) + directory_gone(session)]
    if view.exit is not None and view.exit.background:
        running = ", ".join(background_line(each) for each in view.exit.background[:_NAMED_MAX])
        parts += (f"still running: {running}", f"ends with {stop}")
    if view.exit is None:
        if not view.is_secret:
            parts += next_calls
        parts.append(f"the user can: acpterm attach {session.id}")
    if view.is_secret:
        parts[0] += ", probably a password: do not ask for it, and do not type it"
    return f"[{' · '.join(parts)}]"


def call_text(tool: str, **arguments: object) -> str:
    """Return a call as text: `terminal_continue {"sessionId":"term-1"}`.

    An argument whose value is `...` is written as `…`: the model has to choose its value.
    """
    pairs = (
        f"{json.dumps(name)}:{'…' if value is ... else json.dumps(value, ensure_ascii=False)}"
        for name, value in arguments.items()
    )
    return f"{tool} {{{','.join(pairs)}}}"


def directory_gone(session: Session) -> str:
    """Return text about the session's directory if it was gone when the program started."""
    gone = session.cwd_gone
    return "" if gone is None else f", in {session.cwd}, since {gone} is gone"


def _what(session: Session, view: View) -> str:
    """Return text that says what the program does, or how it has ended."""
    end = view.exit
    seconds = f"{session.uptime:.1f} s"
    matched = "" if view.matched is None else f", matched {_quoted(view.matched)}"
    if end is None:
        if (stopped := view.stopped) is not None:
            who = f"{one_line(stopped.command)} (pid {stopped.pid})"
            return f"stopped: {who} {stopped.why}: {stopped.hint}{matched}"
        if not view.is_waiting:
            return f"running {seconds}{matched}"
        what = view.waiting_program or "waits for input"
        # The last line of an editor or pager is no prompt.
        prompt = f" at {_quoted(view.prompt)}" if view.prompt and what.endswith("input") else ""
        return f"running {seconds}, {what}{prompt}{matched}"
    how = f"exit code {end.code}" if end.signal is None else f"signal {end.signal}"
    if end.code is None and end.signal is None:
        how = "exit status unknown"
    by = {
        "agent": ", stopped by you",
        "user": ", stopped by the user",
        "timeout": ", at its time limit",
        "idle": ", because it was idle",
        "limit": f", at the limit {end.limit}",
        "disconnect": ", because the connection was lost",
        "lost": ", because the exit status or the connection to its host was lost",
        "node_failure": ", because its node failed",
        "time_limit": ", at the time limit of its job",
        "preempted": ", because its job was preempted",
        "cancelled": ", because its job was cancelled",
        "not_started": ", because the cluster did not start it",
    }.get(end.ended_by or "", "")
    word = "exited" if state_of(view) == "exited" else "killed"
    return f"{word} after {seconds}, {how}{by}{matched}"


def _quoted(text: str) -> str:
    text = text if len(text) <= PROMPT_CHARS_MAX else f"…{text[-PROMPT_CHARS_MAX:]}"
    return json.dumps(text, ensure_ascii=False)


def session_result(session: Session, view: View, status: str, note: str) -> SessionResult:
    """Return the structured content of a result about `session`.

    `status` is the line with the state. `note` says how to read the output that was left out.
    """
    end = view.exit
    return SessionResult(
        id=session.id,
        status=status,
        state=state_of(view),
        output=view.cropped.with_note(note),
        position=session.position,
        complete=end is not None,
        exitCode=None if end is None else end.code,
        signal=None if end is None else end.signal,
        endedBy=None if end is None else end.ended_by,
        cwd=session.cwd,
        wallSeconds=round(session.uptime, 3),
        totalBytes=view.position,
        truncated=view.cropped.is_cropped or view.lost > 0,
        background=[] if end is None else [*end.background],
    )
