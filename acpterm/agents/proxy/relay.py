"""Handles each message between an editor and its agent.

Messages are passed on in order, as the lines that were received. Those that concern terminals are
changed, or go to the host:

- The editor's `initialize` is passed on with terminals added to its capabilities.
- The agent's `terminal/*` requests go to the host (`terminals`), unless the editor runs the agent's
  terminals.
- The agent's `session/update` and `session/request_permission` are passed on with their terminals
  translated into what the editor can show (`presenter`). Updates of tool calls go to the host too.
- What the agent prints that is no message goes to stderr and the log. The first line of each kind
  is reported to the user.
- The host's questions to the user, and the proxy's own, go to the editor (`editor_requests`). The
  agent sees neither them nor the responses.
- The editor's prompts that begin with `/terminal` are answered by `chat`, which also adds that
  command to the agent's `available_commands_update`.
- With `--mcp`, the editor's requests that open sessions are passed on with acpterm's MCP server,
  which has a socket for each session (`sockets`).

Only two tasks receive messages, `from_editor` and `from_agent`; messages are sent through one
queue per side. A task that reads one side waits until the other side's queue has drained, so a slow
side slows the other, and memory stays bounded. In a proxy chain one task receives the messages of
both sides, from the conductor (`successor`).

`_pending` has the editor's requests that the agent has not responded to. If the agent exits, `fail`
sends an error response, with the reason, for each of them.
"""

from collections.abc import Callable
from typing import Any, Final

import trio
from msgspec import UNSET, Raw

from acpterm.acp.raw_json import members, text
from acpterm.acp.terminal_updates import ProgramExit
from acpterm.agents import session_update
from acpterm.agents.agent_run import Hosted
from acpterm.agents.envelope import EMPTY, Envelope, cancelled_id, parse_envelope
from acpterm.agents.proxy import capabilities
from acpterm.agents.proxy.capabilities import Capabilities
from acpterm.agents.proxy.chat import COMMANDS_UPDATE, Chat, OpenClient
from acpterm.agents.proxy.editor_requests import EditorRequests
from acpterm.agents.proxy.presenter import Presenter, new_presenter
from acpterm.agents.proxy.successor import Successor
from acpterm.agents.questions import QuestionTasks
from acpterm.agents.session_update import SESSION_UPDATE, TOOL_CALLS, SessionKey
from acpterm.agents.terminals import HOST_METHODS, SessionTerminals
from acpterm.agents.wirelog import WireLog
from acpterm.config import Settings
from acpterm.jsonrpc import (
    PARSE_ERROR,
    Id,
    InvalidMessage,
    LineSplitter,
    Oversized,
    RpcError,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_response,
    excerpt,
    replace_lone_surrogates,
)
from acpterm.link.session import Response
from acpterm.runtime.sanitize import strip_controls
from acpterm.runtime.send_queue import SendQueue

_CHUNK: Final = 64 * 1024
_CREATING: Final = ("session/new", "session/fork")
_OPENING: Final = (*_CREATING, "session/load", "session/resume")
_CLOSING: Final = ("session/close", "session/delete")
_NOT_JSON: Final = "The agent has printed a line that is not JSON"
_NO_MESSAGE: Final = "The agent has printed JSON that is no message"
_TOO_LONG: Final = "A message of the agent was too long"
# Bytes of such a line in which a text for the user is looked for.
_REPORTED_BYTES: Final = 1000


class LineReader:
    """Reads lines of at most `max_line` bytes; drops longer ones after passing on their size."""

    def __init__(
        self,
        stream: trio.abc.ReceiveStream,
        max_line: int,
        on_oversized: Callable[[int], None],
    ) -> None:
        self._stream = stream
        self._on_oversized = on_oversized
        self._splitter = LineSplitter(max_line)

    async def read(self) -> list[bytes] | None:
        """Wait for the next bytes; return the lines that they complete; None at the end."""
        try:
            data = await self._stream.receive_some(_CHUNK)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return None
        lines = []
        # If the peer exited abruptly, its last line lacks its newline.
        for line in self._splitter.feed(data or b"\n"):
            if isinstance(line, Oversized):
                self._on_oversized(line.size)
            else:
                lines.append(line)
        return lines if data else lines or None


class Relay:
    """Relays messages between one editor and one agent; `editor` and `agent` are their queues.

    With `ours`, the host runs the agent's terminals, if there is one. Without `open_user`, prompts
    that begin with `/terminal` go to the agent.
    """

    def __init__(
        self,
        editor: SendQueue,
        agent: SendQueue | Successor,
        *,
        editor_capabilities: Capabilities,
        settings: Settings,
        log: WireLog,
        hosted: Hosted,
        nursery: trio.Nursery,
        ours: bool = True,
        open_user: OpenClient | None = None,
        config: str | None = None,
    ) -> None:
        host = hosted.host
        self._editor = editor
        self._agent = agent
        self._log = log
        self._terminals: SessionTerminals | None = None
        self._ours: Final = ours and host is not None
        self._presenter: Presenter = new_presenter(
            editor_capabilities, settings, ours=self._ours, follow=self._follow
        )
        self._is_v2 = False
        self._process = hosted.process
        self._shows_notices = editor_capabilities.shows_notices
        self._session: str | None = None
        # The kinds of the agent's output that is no message, that were reported to the user.
        self._reported: set[str] = set()
        self._notices: list[tuple[str, str]] = []
        self._pending: dict[Id, tuple[str, dict[str, Raw]]] = {}
        self._changed: Final = trio.lowlevel.ParkingLot()
        self._sockets = hosted.sockets
        self._requests: Final = EditorRequests(self._to_editor, editor.drain)
        self._chat: Chat | None = None
        if open_user is not None:
            self._chat = Chat(
                config,
                open_user,
                self._requests,
                editor=editor,
                send=self._to_editor,
                nursery=nursery,
            )
        if host is not None:
            nursery.start_soon(QuestionTasks(hosted.questions, host, self._requests.ask).run)
            self._terminals = SessionTerminals(
                host,
                nursery,
                respond=self._respond,
                on_created=self._presenter.on_created,
                on_output=self._on_output,
                on_exit=self._on_exit,
                drain=editor.drain,
            )

    async def from_editor(self, lines: LineReader) -> None:
        while (batch := await lines.read()) is not None:
            for line in batch:
                self.handle_editor_line(line)
            await self._agent.drain()
            await self._log.drain()

    async def from_agent(self, lines: LineReader) -> None:
        while (batch := await lines.read()) is not None:
            for line in batch:
                await self._handle_agent_line(line)
            await self._editor.drain()
            if self._terminals is not None:
                await self._terminals.drain()
            await self._log.drain()

    async def handle_conductor_lines(self, batch: list[bytes], successor: Successor) -> None:
        """Handle messages of the conductor, which are of editor and agent, in order."""
        for line in batch:
            if (message := successor.unwrap(line)) is None:
                continue
            if message.is_of_agent:
                await self._handle_agent_line(message.line)
            else:
                self.handle_editor_line(message.line)
        await self._editor.drain()
        if self._terminals is not None:
            await self._terminals.drain()
        await self._log.drain()

    async def render(self) -> None:
        """Send the editor the presenter's delayed lines when they are due, until cancelled."""
        while True:
            with trio.move_on_at(self._presenter.next_render_at):
                await self._changed.park()
            await self._editor.drain()
            self._to_editor(self._presenter.render())

    def fail(self, error: RpcError) -> None:
        pending, self._pending = self._pending, {}
        self._to_editor([encode_error(id_, error) for id_ in pending])
        if self._chat is not None:
            self._chat.fail(error)

    def handle_editor_line(self, line: bytes) -> None:
        self._log.write("editor->proxy", line)
        message = parse_envelope(line)
        if self._chat is not None and not self._is_v2 and self._chat.take(message, self._has_turn):
            return
        if message.is_request and isinstance(message.method, str):
            self._pending[message.key] = message.method, _params_to_keep(message)
            if message.method == "initialize":
                params = capabilities.with_terminals(message.params, ours=self._ours)
                line = encode_request(message.key, message.method, params)
            else:
                line = self._session_request(line, message, message.method)
        elif message.method == "session/cancel" and self._terminals is not None:
            if (session := text(members(message.params).get("sessionId"))) is not None:
                self._terminals.cancel_turn(session)
        elif message.is_response and self._requests.take_response(message):
            return
        self._to_agent(line)

    def _session_request(self, line: bytes, message: Envelope, method: str) -> bytes:
        """Return a request as it goes to the agent: with acpterm's MCP server if it needs one."""
        if method not in _OPENING:
            return line
        fields, session = members(message.params), None
        if method not in _CREATING:
            session = self._open_session(fields, fields)
        if self._sockets is None:
            return line
        params = self._sockets.opening(message.key, fields, session=session, is_v2=self._is_v2)
        return encode_request(message.key, method, params)

    def _has_turn(self, session: str) -> bool:
        return any(
            method == "session/prompt" and text(params.get("sessionId")) == session
            for method, params in self._pending.values()
        )

    async def _handle_agent_line(self, line: bytes) -> None:
        if (parsed := self._parse(line)) is None:
            return
        line, message = parsed
        opened: str | None = None
        if message.is_response:
            opened = await self._handle_response(message)
            # Only now: if `_handle_response` was cancelled, `fail` must answer the request.
            self._pending.pop(message.key, None)
        elif message.method == SESSION_UPDATE and not self._is_v2:
            self._to_editor(await self._translate(line, message))
            return
        elif message.method == "session/request_permission" and not self._is_v2:
            before, params = self._presenter.permission(members(message.params))
            self._to_editor(before)
            if params is not None:
                line = encode_request(message.key, "session/request_permission", params)
        elif self._pass_to_host(message):
            return
        self._to_editor([line])
        if opened is not None:
            self._session = opened
            self._send_notices()
            if self._chat is not None and not self._is_v2:
                self._chat.announce(opened)

    def on_oversized(self, size: int) -> None:
        """Report a message of the agent that was dropped because of its size, in bytes."""
        what = f"{size} bytes: see max_message_bytes"
        line = f"{_TOO_LONG}, dropped: {what}".encode()
        self._log.write("agent->proxy", line)
        self._add_stray(line, _TOO_LONG, what)

    def _parse(self, line: bytes) -> tuple[bytes, Envelope] | None:
        """Return a line of the agent, parsed; an error in place of an invalid response.

        Return None if the line is not for the editor, because it is no message.
        """
        self._log.write("agent->proxy", line)
        message = parse_envelope(line)
        if message is EMPTY:
            # Parse it leniently, only to route it: the line is still passed on as received.
            message = parse_envelope(replace_lone_surrogates(line))
        if message.is_message:
            return line, message
        try:
            decode(line)
        except InvalidMessage as error:
            what = strip_controls(line[:_REPORTED_BYTES].decode(errors="replace"))
            self._add_stray(line, _NOT_JSON if error.code == PARSE_ERROR else _NO_MESSAGE, what)
            if error.id is not None:
                refusal = encode_error(error.id, error)
                if error.is_response and error.id in self._pending:
                    return refusal, parse_envelope(refusal)
                if not error.is_response:
                    self._to_agent(refusal)
        return None

    def _add_stray(self, line: bytes, kind: str, what: str) -> None:
        """Put output that is no message on stderr; report the first of each kind to the user."""
        if self._process is None:
            return  # a conductor has sent it, and reads no stderr of ours
        self._process.add_stray(line)
        if kind not in self._reported:
            self._reported.add(kind)
            self._process.report(f"acpterm: {kind}: {excerpt(what)}".encode())
            self._notices.append((kind, excerpt(what)))
            self._send_notices()

    def _send_notices(self) -> None:
        if self._session is None or not (self._shows_notices or self._is_v2):
            return
        notices, self._notices = self._notices, []
        for title, what in notices:
            update = {"sessionUpdate": "notice", "severity": "warning", "title": title}
            params = {"sessionId": self._session, "update": {**update, "description": what}}
            self._to_editor([encode_notification(SESSION_UPDATE, params)])

    def _pass_to_host(self, message: Envelope) -> bool:
        """Pass a message of the agent on to the host; return whether it is for the host."""
        if self._terminals is None or not self._ours:
            return False
        method = message.method
        if method in HOST_METHODS and message.is_request and isinstance(method, str):
            self._terminals.request(message.key, method, message.params)
            return True
        cancels = method == "$/cancel_request"
        return cancels and self._terminals.cancel(cancelled_id(message.params))

    async def _translate(self, line: bytes, message: Envelope) -> list[bytes]:
        parsed = session_update.parse_update(message.params)
        if parsed is None:
            return [line]
        if parsed.kind == COMMANDS_UPDATE and self._chat is not None:
            return [self._chat.translate(parsed)]
        if parsed.kind in TOOL_CALLS and self._terminals is not None:
            self._terminals.notify(SESSION_UPDATE, message.params)
            if parsed.ends_call:
                # Editors read nothing of a call after its end: all its output has to precede it.
                before, terminals = self._presenter.before_end(parsed)
                self._to_editor(before)
                await self._terminals.settle(terminals)
        self._changed.unpark_all()
        return self._presenter.translate(line, parsed)

    async def _handle_response(self, message: Envelope) -> str | None:
        """Handle a response of the agent; return the id of the session that it opens, if any."""
        method, params = self._pending.get(message.key, ("", {}))
        if method == "initialize" and message.error is UNSET:
            # In ACP v2 the agent runs terminals itself, and clients show them: pass updates on.
            self._is_v2 = capabilities.protocol_version(message.result) > 1
            if self._terminals is not None:
                self._terminals.name_agent(members(members(message.result).get("agentInfo")))
        elif method == "session/prompt" and (session := text(params.get("sessionId"))) is not None:
            # All output so far has to be shown before the response that ends the turn.
            if self._terminals is not None:
                if text(members(message.result).get("stopReason")) == "cancelled":
                    # Again, for what the agent has created since the editor cancelled.
                    self._terminals.cancel_turn(session)
                await self._terminals.end_turn(session)
            self._to_editor(self._presenter.render(session))
        else:
            return self._session_response(message, method, params)
        return None

    def _session_response(
        self, message: Envelope, method: str, params: dict[str, Raw]
    ) -> str | None:
        """Handle a response about a session; return the session's id if it is open now."""
        failed = message.error is not UNSET
        session = None if failed else text(params.get("sessionId"))
        if method in _CLOSING and session is not None:
            self._close_session(session)
        if method not in _OPENING:
            return None
        if method in _CREATING and not failed:
            session = self._open_session(members(message.result), params)
        if self._sockets is not None:
            if session is None:
                self._sockets.failed(message.key)
            else:
                self._sockets.opened(message.key, session)
        return session

    def _open_session(self, with_id: dict[str, Raw], with_cwd: dict[str, Raw]) -> str | None:
        """Record the directory of an open session; return its id, if there is one."""
        session, cwd = text(with_id.get("sessionId")), text(with_cwd.get("cwd"))
        if session is not None and cwd is not None:
            if self._terminals is not None:
                self._terminals.open_session(session, cwd)
            if self._chat is not None:
                self._chat.open_session(session, cwd)
        return session

    def _close_session(self, session: str) -> None:
        if self._terminals is not None:
            self._terminals.close_session(session)
        if self._chat is not None:
            self._chat.close_session(session)
        if self._sockets is not None:
            self._sockets.close(session)

    def _follow(self, terminal: SessionKey) -> None:
        if self._terminals is not None:
            self._terminals.follow(terminal)

    def _on_output(self, terminal: SessionKey, data: bytes, lost: int) -> None:
        self._to_editor(self._presenter.on_output(terminal, data, lost))
        self._changed.unpark_all()

    def _on_exit(self, terminal: SessionKey, end: ProgramExit) -> None:
        self._to_editor(self._presenter.on_exit(terminal, end))
        self._changed.unpark_all()

    def _respond(self, id_: Id, response: Response) -> None:
        if isinstance(response, RpcError):
            self._to_agent(encode_error(id_, response))
        else:
            self._to_agent(encode_response(id_, response))

    def _to_editor(self, lines: list[bytes]) -> None:
        for line in lines:
            self._send(self._editor, "proxy->editor", line)

    def _to_agent(self, line: bytes) -> None:
        self._send(self._agent, "proxy->agent", line)

    def _send(self, queue: SendQueue | Successor, direction: str, line: bytes) -> None:
        self._log.write(direction, line)
        queue.put(line if line.endswith(b"\n") else line + b"\n")


def _params_to_keep(message: Envelope) -> dict[str, Raw]:
    if message.method not in (*_OPENING, *_CLOSING, "session/prompt"):
        return {}
    params: dict[str, Any] = members(message.params)
    # Copied, because a Raw value keeps the whole message in memory.
    return {name: params[name].copy() for name in ("sessionId", "cwd") if name in params}
