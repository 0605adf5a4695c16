"""The state of a session, in the first line of a result and in its structured content.

The line says what the program does, and which tools can follow, without what the text says or the
model has sent: ``[running, python3 waits for input · terminal_continue]``.
"""

import json
import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from acpterm.acp.agent_meta import BackgroundProcess
from acpterm.api.results import Exit, Stopped
from acpterm.commands.format import background_line
from acpterm.mcp.cropping import Cropped, Lost
from acpterm.mcp.sessions import TerminalSession
from acpterm.runtime.sanitize import one_line

State: TypeAlias = Literal[
    "running", "waiting_for_input", "stopped", "exited", "killed", "approval_pending"
]
PROMPT_CHARS_MAX: Final = 60
# How many processes of a background the first line names.
_NAMED_MAX: Final = 3
_SECRET_WORDS: Final = ("password", "passphrase", "passcode", "pin", "secret", "token", "otp")


class SessionResult(Struct, kw_only=True, omit_defaults=False):
    """The structured content of a result about one session.

    `status` repeats the first line: some clients show the model only the structured content.
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
    text: str  # all new output, from `since` to `position`, or the screen
    cropped: Cropped  # the part of `text` that is shown
    since: int
    position: int
    lost: Lost | None = None  # what came before `text`, and is no longer retained
    exit: Exit | None = None
    is_waiting: bool = False
    hides_input: bool = False
    stopped: Stopped | None = None
    waiting_program: str | None = None  # vim waits on COMMIT_EDITMSG
    prompt: str = ""  # the last line of output
    matched: str | None = None  # matched "ready"
    waited: str = ""  # what else the first line says of a wait
    screen_size: str | None = None  # 120x40, if `text` is a screen
    seconds: float | None = None  # the run time, if that is not the session's

    @property
    def is_secret(self) -> bool:
        """Whether the program probably waits for a password."""
        prompt = self.prompt.lower()
        is_named = any(re.search(rf"\b{word}\b", prompt) for word in _SECRET_WORDS)
        is_asked = self.hides_input or (is_named and self.screen_size is None)
        return self.is_waiting and is_asked


def state_of(view: View) -> State:
    """Return the state; `exited` means that the program has ended by itself."""
    if view.exit is None:
        if view.stopped is not None:
            return "stopped"
        return "waiting_for_input" if view.is_waiting else "running"
    return "exited" if view.exit.ended_by in (None, "exited") else "killed"


def state_line(
    session: TerminalSession,
    view: View,
    *,
    next_calls: Sequence[str],
    stop: str,
    shows_id: bool = False,
) -> str:
    """Return the first line of a result, with `next_calls` unless a password is waited for."""
    name = f"{session.id} " if shows_id and not view.is_secret else ""
    parts = [f"{name}{_what(session, view)}{directory_gone(session)}"]
    if view.exit is not None:
        parts += background_parts(view.exit.background, stop)
    elif view.is_secret:
        parts[0] += f", probably a password, for the user alone: acpterm attach {session.id}"
    else:
        parts += next_calls
    return f"[{' · '.join(parts)}]"


def says_more(session: TerminalSession, view: View) -> bool:
    """Return whether the first line says more than that the program runs, or its exit code."""
    if session.cwd_gone is not None:
        return True
    end = view.exit
    if end is None:
        return view.is_waiting or bool(view.stopped or view.screen_size or view.matched)
    return state_of(view) != "exited" or end.code is None or bool(end.background)


def background_parts(
    background: Sequence[BackgroundProcess], stop: str, where: str = ""
) -> list[str]:
    """Return the parts of the first line that say what runs on, and that `stop` ends it."""
    if not background:
        return []
    running = ", ".join(background_line(each) for each in background[:_NAMED_MAX])
    others = " and others" if len(background) > _NAMED_MAX else ""
    return [f"still running{where}: {running}{others}", f"{stop} ends it"]


def call_text(tool: str, **arguments: object) -> str:
    """Return a call as text: `terminal_continue {"sessionId":"term-1"}`; `...` becomes `…`."""
    pairs = (
        f"{json.dumps(name)}:{'…' if value is ... else json.dumps(value, ensure_ascii=False)}"
        for name, value in arguments.items()
    )
    return f"{tool} {{{','.join(pairs)}}}"


SCREEN_CALLS: Final = ("terminal_continue with keys", "terminal_screen")
"""What can follow while a program draws the whole screen."""


def directory_gone(session: TerminalSession) -> str:
    gone = session.cwd_gone
    return "" if gone is None else f", in {session.cwd}, since {gone} is gone"


def _what(session: TerminalSession, view: View) -> str:
    end = view.exit
    seconds = f"{session.uptime if view.seconds is None else view.seconds:.1f} s"
    matched = "" if view.matched is None else f", {view.matched}"
    matched += view.waited
    if end is None:
        if (stopped := view.stopped) is not None:
            who = f"{one_line(stopped.command)} (pid {stopped.pid})"
            return f"stopped: {who} {stopped.why}: {stopped.hint}{matched}"
        screen = "" if view.screen_size is None else f", full screen {view.screen_size}"
        if not view.is_waiting:
            return f"running {seconds}{screen}{matched}"
        what = view.waiting_program or "waits for input"
        # The last line of an editor or pager is no prompt; the output mostly ends with the prompt.
        asks = view.prompt and what.endswith("input") and view.screen_size is None
        asks = asks and not (view.cropped.head + view.cropped.tail).rstrip().endswith(view.prompt)
        prompt = f" at {quoted(view.prompt)}" if asks else ""
        return f"running{screen}, {what}{prompt}{matched}"
    how = f"exit code {end.code}" if end.signal is None else f"signal {end.signal}"
    if end.code is None and end.signal is None:
        how = "exit status unknown"
    word = "exited" if state_of(view) == "exited" else "killed"
    return f"{word} after {seconds}, {how}{ended_by(end)}{matched}"


def ended_by(end: Exit) -> str:
    return {
        "agent": ", stopped by you",
        "user": ", stopped by the user",
        "timeout": ", at the limit wall" if end.limit == "wall" else ", at its time limit",
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


def quoted(text: str) -> str:
    text = text if len(text) <= PROMPT_CHARS_MAX else f"…{text[-PROMPT_CHARS_MAX:]}"
    return json.dumps(text, ensure_ascii=False)


def session_result(session: TerminalSession, view: View, status: str, note: str) -> SessionResult:
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
        truncated=view.cropped.is_cropped or view.lost is not None,
        background=[] if end is None else [*end.background],
    )
