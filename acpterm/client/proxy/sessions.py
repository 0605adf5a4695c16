"""Notifies other modules of the sessions that the editor opens and closes.

`terminals` sends the host a session's directory, and releases the terminals at the session's end.
`chat` records the directory, and cancels the prompts at the session's end. `sockets` adds an MCP
server with a socket to a request that opens a session, before the request is passed on. The id of a
new session is in the agent's response; the id of a session that is opened again is in the request.
"""

from typing import Final

from msgspec import UNSET, Raw

from acpterm.acp.raw_json import members, text
from acpterm.client.envelope import Envelope
from acpterm.client.proxy.chat import Chat
from acpterm.client.session_sockets.sockets import SessionSockets
from acpterm.client.terminals import Terminals
from acpterm.jsonrpc import encode_request

_OPENING: Final = ("session/new", "session/fork")
_REOPENING: Final = ("session/load", "session/resume")
_CLOSING: Final = ("session/close", "session/delete")
WITH_SESSION: Final = (*_OPENING, *_REOPENING, *_CLOSING)
"""The methods whose responses are handled here."""


class Sessions:
    """The sessions of one agent.

    `terminals` is None if no terminals run at a host, `chat` if the proxy answers no prompts, and
    `sockets` if acpterm's MCP server is not added to sessions.
    """

    def __init__(
        self, terminals: Terminals | None, chat: Chat | None, sockets: SessionSockets | None
    ) -> None:
        self._terminals = terminals
        self._chat = chat
        self._sockets = sockets

    def handle_request(self, line: bytes, message: Envelope, *, is_v2: bool) -> bytes:
        """Handle a request of the editor; return the line to send to the agent.

        Usually that is `line`, the received line. But acpterm's MCP server is added to a request
        that opens a session, if there are `sockets`. `message` is the parsed form of `line`.
        `is_v2`: the agent speaks version 2 of ACP.
        """
        method, fields, session = message.method, members(message.params), None
        if not isinstance(method, str) or method not in (*_OPENING, *_REOPENING):
            return line
        if method in _REOPENING:
            session = self._open(fields, fields)
        if self._sockets is None:
            return line
        params = self._sockets.opening(message.key, fields, session=session, is_v2=is_v2)
        return encode_request(message.key, method, params)

    def handle_response(self, message: Envelope, method: str, params: dict[str, Raw]) -> str | None:
        """Handle the response `message` to a request of the editor.

        `method` and `params` are those of the request. Return the id of the session that the agent
        has opened with this response; None if it has opened no session.
        """
        failed = message.error is not UNSET
        session = None if failed else text(params.get("sessionId"))
        if method in _CLOSING:
            if session is not None:
                self._close(session)
            return None
        if method not in (*_OPENING, *_REOPENING):
            return None
        if method in _OPENING and not failed:
            session = self._open(members(message.result), params)
        if self._sockets is not None:
            if session is None:
                self._sockets.failed(message.key)
            else:
                self._sockets.opened(message.key, session)
        return session

    def _open(self, with_id: dict[str, Raw], with_cwd: dict[str, Raw]) -> str | None:
        """Notify `terminals` and `chat` that a session is open; return the session's id.

        The id is the member `sessionId` of `with_id`, and the session's directory is the member
        `cwd` of `with_cwd`. Return None if there is no id.
        """
        session, cwd = text(with_id.get("sessionId")), text(with_cwd.get("cwd"))
        if session is not None and cwd is not None:
            if self._terminals is not None:
                self._terminals.open_session(session, cwd)
            if self._chat is not None:
                self._chat.open_session(session, cwd)
        return session

    def _close(self, session: str) -> None:
        if self._terminals is not None:
            self._terminals.close_session(session)
        if self._chat is not None:
            self._chat.close_session(session)
        if self._sockets is not None:
            self._sockets.close(session)
