"""What the proxy does with each message between an editor and its agent.

What is not about terminals is passed on, in order, as the line that it came as. What is:

- the editor's `initialize` is passed on with terminals among its capabilities;
- the agent's `terminal/*` is answered by the host (`terminals`), unless the editor is to do that;
- the agent's `session/update` and `session/request_permission` are passed on with the terminals in
  them translated into what the editor can show (`showing`), and the host is told of tool calls;
- of sessions and turns the proxy learns by the requests and answers that pass.

Who owns what: two readers, `from_editor` and `from_agent`, each a task, and nobody else, take
messages; all that leaves goes through an outbox for each side. A reader goes on reading when there
is room in the outbox that it fills, so a slow side holds up the other and no memory grows.

What waits for an answer of the agent's is remembered (`_pending`): if the agent goes, `fail`
answers all of it with the reason.
"""

from typing import Any, Final

import trio
from msgspec import UNSET, Raw, UnsetType

from acpterm.acp.raw_json import members, text
from acpterm.acp.terminal_updates import ExitInfo
from acpterm.client import update
from acpterm.client.endpoint import Endpoint, Response
from acpterm.client.envelope import EMPTY, Envelope, parse_envelope
from acpterm.client.proxy import capabilities
from acpterm.client.proxy.capabilities import Capabilities
from acpterm.client.proxy.lines import Lines
from acpterm.client.proxy.presenter import Presenter, new_presenter
from acpterm.client.terminals import METHODS, Terminals
from acpterm.client.update import SESSION_UPDATE, TOOL_CALLS, SessionKey
from acpterm.client.wirelog import WireLog
from acpterm.config import Settings
from acpterm.jsonrpc import (
    INVALID_REQUEST,
    Id,
    RpcError,
    encode_error,
    encode_request,
    encode_response,
    replace_lone_surrogates,
)
from acpterm.runtime.send_queue import SendQueue

_OPENING: Final = ("session/new", "session/fork")
_REOPENING: Final = ("session/load", "session/resume")
_CLOSING: Final = ("session/close", "session/delete")


class Relay:
    """The messages between one editor and one agent.

    `host` has the terminals; None is for the editor's own.
    """

    def __init__(
        self,
        editor: SendQueue,
        agent: SendQueue,
        *,
        capable: Capabilities,
        settings: Settings,
        log: WireLog,
        host: Endpoint | None,
        nursery: trio.Nursery,
    ) -> None:
        self._editor = editor
        self._agent = agent
        self._log = log
        self._ours: Terminals | None = None
        self._presenter: Presenter = new_presenter(
            capable, settings, ours=host is not None, follow=self._follow
        )
        self._passes_all = False
        self._pending: dict[Id, tuple[str, dict[str, Raw]]] = {}
        self._news = trio.Event()
        if host is not None:
            self._ours = Terminals(
                host,
                nursery,
                answer=self._answer,
                made=self._presenter.on_created,
                take=self._take,
                ended=self._ended,
                room=editor.drain,
            )

    async def from_editor(self, lines: Lines) -> None:
        """Take what the editor says, until it has said its last."""
        while (batch := await lines.read()) is not None:
            for line in batch:
                self.editor_said(line)
            await self._agent.drain()
            await self._log.drain()

    async def from_agent(self, lines: Lines) -> None:
        """Take what the agent says, until it has said its last."""
        while (batch := await lines.read()) is not None:
            for line in batch:
                await self._agent_said(line)
            await self._editor.drain()
            if self._ours is not None:
                await self._ours.drain()
            await self._log.drain()

    async def render(self) -> None:
        """Show terminals live, until cancelled."""
        while True:
            with trio.move_on_at(self._presenter.next_render_at):
                await self._news.wait()
            self._news = trio.Event()
            await self._editor.drain()
            self._to_editor(self._presenter.render())

    def fail(self, error: RpcError) -> None:
        """Answer all that the editor waits for: the agent is gone."""
        pending, self._pending = self._pending, {}
        self._to_editor([encode_error(id_, error) for id_ in pending])

    def editor_said(self, line: bytes) -> None:
        """Pass on a message of the editor's."""
        self._log.write("editor->proxy", line)
        seen = parse_envelope(line)
        if seen.is_request and isinstance(seen.method, str):
            self._pending[seen.key] = seen.method, _of_interest(seen)
            if seen.method == "initialize":
                told = capabilities.with_terminals(seen.params, ours=self._ours is not None)
                line = encode_request(seen.key, seen.method, told)
            elif seen.method in _REOPENING:
                asked = members(seen.params)
                self._enter(asked, asked)
        elif seen.method == "session/cancel" and self._ours is not None:
            self._ours.notify("session/cancel", seen.params)
        self._to_agent(line)

    async def _agent_said(self, line: bytes) -> None:
        self._log.write("agent->proxy", line)
        seen = parse_envelope(line)
        if seen is EMPTY:
            # What can be made out all the same is; what passes, passes as it came.
            seen = parse_envelope(replace_lone_surrogates(line))
        if seen.is_response:
            await self._agent_answered(seen)
            # Not before: whoever is cancelled meanwhile leaves it to be answered otherwise.
            self._pending.pop(seen.key, None)
        elif seen.method == SESSION_UPDATE and not self._passes_all:
            self._to_editor(self._translated(line, seen))
            return
        elif seen.method == "session/request_permission" and not self._passes_all:
            before, params = self._presenter.permission(members(seen.params))
            self._to_editor(before)
            if params is not None:
                line = encode_request(seen.key, "session/request_permission", params)
        elif self._ours is not None:
            if seen is EMPTY and self._is_ours(line):
                right = "its id must be a number, a string or null"
                error = RpcError(INVALID_REQUEST, f"the message is no request: {right}")
                self._to_agent(encode_error(None, error))
                return
            if seen.method in METHODS and seen.is_request and isinstance(seen.method, str):
                self._ours.request(seen.key, seen.method, seen.params)
                await self._ours.settle()
                return
            if seen.method == "$/cancel_request" and self._ours.cancel(_cancelled(seen.params)):
                return
        self._to_editor([line])

    @staticmethod
    def _is_ours(line: bytes) -> bool:
        """Whether a line that is no message was to be one for the host."""
        return text(members(Raw(line)).get("method")) in METHODS

    def _translated(self, line: bytes, seen: Envelope) -> list[bytes]:
        said = update.read(seen.params)
        if said is None:
            return [line]
        if said.kind in TOOL_CALLS and self._ours is not None:
            self._ours.notify(SESSION_UPDATE, seen.params)
        self._news.set()
        return self._presenter.translate(line, said)

    async def _agent_answered(self, seen: Envelope) -> None:
        method, asked = self._pending.get(seen.key, ("", {}))
        if seen.error is not UNSET and method != "session/prompt":
            method = ""  # then nothing has come of it
        if method == "initialize":
            # In version 2 terminals are the agent's, and clients show them.
            self._passes_all = capabilities.version(seen.result) > 1
            if self._ours is not None:
                self._ours.name_agent(members(members(seen.result).get("agentInfo")))
        elif method in _OPENING:
            self._enter(members(seen.result), asked)
        elif (session := text(asked.get("sessionId"))) is None:
            return
        elif method in _CLOSING and self._ours is not None:
            self._ours.close_session(session)
        elif method == "session/prompt":
            # All that is shown belongs before the answer that ends the turn.
            if self._ours is not None:
                await self._ours.end_turn(session)
            self._to_editor(self._presenter.render(session))

    def _enter(self, named: dict[str, Raw], placed: dict[str, Raw]) -> None:
        session, cwd = text(named.get("sessionId")), text(placed.get("cwd"))
        if session is not None and cwd is not None and self._ours is not None:
            self._ours.open_session(session, cwd)

    def _follow(self, terminal: SessionKey) -> None:
        if self._ours is not None:
            self._ours.follow(terminal)

    def _take(self, terminal: SessionKey, data: bytes, lost: int) -> None:
        self._to_editor(self._presenter.on_output(terminal, data, lost))
        self._news.set()

    def _ended(self, terminal: SessionKey, end: ExitInfo) -> None:
        self._to_editor(self._presenter.on_exit(terminal, end))
        self._news.set()

    def _answer(self, id_: Id, answer: Response) -> None:
        if isinstance(answer, RpcError):
            self._to_agent(encode_error(id_, answer))
        else:
            self._to_agent(encode_response(id_, answer))

    def _to_editor(self, lines: list[bytes]) -> None:
        for line in lines:
            self._send(self._editor, "proxy->editor", line)

    def _to_agent(self, line: bytes) -> None:
        self._send(self._agent, "proxy->agent", line)

    def _send(self, outbox: SendQueue, direction: str, line: bytes) -> None:
        self._log.write(direction, line)
        outbox.put(line if line.endswith(b"\n") else line + b"\n")


def _of_interest(seen: Envelope) -> dict[str, Raw]:
    """Keep of a request what its answer will not say."""
    if seen.method not in (*_OPENING, *_CLOSING, "session/prompt"):
        return {}
    found: dict[str, Any] = members(seen.params)
    # A copy: the value refers to the whole message otherwise, and keeps it.
    return {name: found[name].copy() for name in ("sessionId", "cwd") if name in found}


def _cancelled(params: Raw | UnsetType) -> Id:
    raw = members(params).get("requestId")
    return None if raw is None else parse_envelope(b'{"id":' + bytes(raw) + b"}").key
