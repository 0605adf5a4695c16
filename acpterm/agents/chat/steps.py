"""The steps of an action on terminals: requests on the user's socket, and pauses.

`steps` returns a generator, which yields the steps one after the other. When it has yielded a
`UserRequest`, the caller sends the request to the daemon, and sends the result into the generator
or throws the request's `RpcError` into it. When it has yielded a `Pause`, the caller waits. At the
end, the generator returns the text of the answer, or raises the `RpcError` of a request.

Terminals that `start` creates are owned by the user, and continue when the client ends. They are
named `term-N`, with a number that no terminal has had.
"""

import math
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, Self, TypeAlias

from acpterm.acp.agent_api import ReadResponse, WriteResponse
from acpterm.acp.base import Wire
from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import (
    ExitInfo,
    GetRequest,
    ListRequest,
    ListResponse,
    OutputResponse,
    ScreenResponse,
    TerminalInfo,
    UserCreateRequest,
    UserReadRequest,
    UserTerminalRequest,
    UserWriteRequest,
)
from acpterm.agents.chat.actions import ChatAction
from acpterm.commands.format import ended, reason, title
from acpterm.config import Settings
from acpterm.jsonrpc import RpcError
from acpterm.keys import depends_on_cursor_mode, key_bytes, looks_like_key
from acpterm.runtime.command_line import command_line
from acpterm.runtime.sanitize import one_line

# The name of terminals that `start` creates. The daemon replaces the `#` by a number.
_NAME: Final = "term-#"
# Pause between two requests for the state of a terminal, while new output is awaited.
_POLL_S: Final = 0.1
# Maximum bytes of new output in an answer; of longer output, the answer has the last bytes.
_SHOWN_BYTES: Final = 32 * 1024


class UserRequest(NamedTuple):
    """A request on the user's socket; `method` is without the prefix `_acpterm/`."""

    method: str
    params: Wire
    into: type[Wire]


class Pause(NamedTuple):
    seconds: float


class Intervals(NamedTuple):
    """How long to wait for the output that follows a start or an input, in seconds.

    At least `minimum`, at most `maximum`. In between, until the program has printed nothing for
    `settle`, waits for input, or has ended.
    """

    minimum: float = 1.0
    settle: float = 2.0
    maximum: float = 30.0

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(
            settings.tool_min_interval, settings.tool_settle_interval, settings.tool_max_interval
        )


class StartPlace(NamedTuple):
    """Where `start` runs a command; without `cwd`, in the directory of the client."""

    cwd: str | None
    provider: str


Steps: TypeAlias = Generator[UserRequest | Pause, Any, str]
_Ask: TypeAlias = Generator[UserRequest | Pause, Any, Any]


def steps(
    action: ChatAction,
    place: StartPlace,
    intervals: Intervals = Intervals(),  # noqa: B008  it is immutable
    clock: Callable[[], float] = time.monotonic,
) -> Steps:
    match action.name:
        case "list":
            return _list()
        case "start":
            return _start(action, place, intervals, clock)
        case "send":
            return _send(action, intervals, clock)
        case "output":
            return _output(action.target)
        case _:
            return _stop(action.target)


def _list() -> Steps:
    response: ListResponse = yield UserRequest("terminal/list", ListRequest(), ListResponse)
    return list_text(response.terminals, time.time())


def _start(
    action: ChatAction, place: StartPlace, intervals: Intervals, clock: Callable[[], float]
) -> Steps:
    params = UserCreateRequest(
        command=action.text,
        args=action.args,
        cwd=place.cwd,
        name=_NAME,
        provider=None if place.provider == "local" else place.provider,
    )
    created: TerminalInfo = yield UserRequest("terminal/create", params, TerminalInfo)
    output = yield from _collect(created, 0, intervals, clock)
    command = command_line(action.text, action.args)
    return (
        f"Terminal Session Started\nTerminal Id: {title(created)}\nSent Command: {command}\n\n"
        f"Output:\n{output}"
    )


def _send(action: ChatAction, intervals: Intervals, clock: Callable[[], float]) -> Steps:
    info = yield from _get(action.target)
    data = f"{action.text}\r"
    if looks_like_key(action.text):
        data = yield from _key(info, action)
    params = UserWriteRequest(info.terminal_id, data)
    yield from _request(info, action.target, "write", params, WriteResponse)
    output = yield from _collect(info, info.position, intervals, clock)
    return f"Terminal Session: {title(info)}\n\nOutput:\n{output}"


def _key(info: TerminalInfo, action: ChatAction) -> _Ask:
    application = False
    if depends_on_cursor_mode(action.text):
        params = UserTerminalRequest(info.terminal_id)
        screen: ScreenResponse = yield from _request(
            info, action.target, "screen", params, ScreenResponse
        )
        application = screen.application_cursor
    return key_bytes(action.text, application=application).decode()


def _output(terminal: str) -> Steps:
    info = yield from _get(terminal)
    params = UserTerminalRequest(info.terminal_id)
    response: OutputResponse = yield from _request(info, terminal, "output", params, OutputResponse)
    text = response.text
    if response.truncated:
        text = f"[the beginning is no longer retained]\n{text}"
    return f"Terminal Session: {title(info)}\nComplete Output:\n{text}"


def _stop(terminal: str) -> Steps:
    info = yield from _get(terminal)
    # A terminal of an agent is only killed: the agent may still read the output, and releases it.
    method = "release" if info.owner == "user" else "kill"
    params = UserTerminalRequest(info.terminal_id)
    yield from _request(info, terminal, method, params, Empty)
    return f"Terminal session {title(info)} terminated."


def _get(terminal: str) -> _Ask:
    # A name means the user's terminal first. Later requests use the id, since another terminal may
    # get the name meanwhile.
    info: TerminalInfo = yield UserRequest(
        "terminal/get", GetRequest(terminal, own=True), TerminalInfo
    )
    return info


def _request(info: TerminalInfo, typed: str, method: str, params: Wire, into: type[Wire]) -> _Ask:
    try:
        result = yield UserRequest(f"terminal/{method}", params, into)
    except RpcError as error:
        message = error.message.replace(info.terminal_id, typed)
        raise RpcError(error.code, message, error.data) from error
    return result


def _collect(
    terminal: TerminalInfo, since: int, intervals: Intervals, clock: Callable[[], float]
) -> _Ask:
    """Wait for output after the position `since`; return it as text for the answer."""
    identifier = terminal.terminal_id
    began = changed_at = clock()
    position = since
    while True:
        info: TerminalInfo = yield UserRequest("terminal/get", GetRequest(identifier), TerminalInfo)
        now = clock()
        if info.position != position:
            position, changed_at = info.position, now
        if info.exit_status is not None or now - began >= intervals.maximum:
            break
        if now - began >= intervals.minimum and (
            info.waiting_for_input or info.waiting_program or now - changed_at >= intervals.settle
        ):
            break
        yield Pause(_POLL_S)
    first = max(since, position - _SHOWN_BYTES)
    params = UserReadRequest(identifier, since=first, format="text")
    response: ReadResponse = yield UserRequest("terminal/read", params, ReadResponse)
    left_out = first + response.lost - since
    return _new_output(response.data, left_out, info.exit_status, title(terminal))


_COMMAND_WIDTH: Final = 30
_HEADER: Final = """\
Active Terminal Sessions:
ID           | Command                        | Position | Running | Uptime
-------------|--------------------------------|----------|---------|--------"""


def list_text(terminals: Sequence[TerminalInfo], now: float) -> str:
    """Return the table of terminals; `now` in seconds since 1970."""
    if not terminals:
        return "No active terminal sessions."
    return "\n".join([_HEADER, *(_row(terminal, now) for terminal in terminals)])


def _row(terminal: TerminalInfo, now: float) -> str:
    running = "Yes" if terminal.state == "running" else "No"
    until = now if terminal.exited_at is None else terminal.exited_at / 1000
    uptime = f"{max(0, math.floor(until - terminal.created_at / 1000))}s"
    # Agents choose commands. Nothing else is escaped here: the caller escapes the whole text.
    command = one_line(terminal.command, _COMMAND_WIDTH)
    return (
        f"{title(terminal):<12} | {command:<{_COMMAND_WIDTH}} | {terminal.position:<8} | "
        f"{running:<7} | {uptime}"
    )


def _new_output(output: str, left_out: int, status: ExitInfo | None, terminal: str) -> str:
    lines = []
    if left_out:
        lines.append(f"[{left_out} bytes left out: output {terminal} shows all]")
    if text := output.removesuffix("\n"):
        lines.append(text)
    if status is not None:
        lines.append(f"[{ended(status)}{reason(status)}]")
    return "\n".join(lines)
