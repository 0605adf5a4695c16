"""Answers the editor's prompts that begin with `/terminal`, which never reach the agent.

Each prompt has a task, which runs the action (`chat_runner`), sends the answer to the editor as an
`agent_message_chunk`, and responds to the prompt. The agent may work on a turn of the same session
meanwhile. `session/cancel`, `$/cancel_request` and the end of the session end a prompt early, with
the stop reason `cancelled`; a terminal that the prompt has started continues. An unexpected error
is logged, and ends only its prompt, with an error response.

The command `/terminal` is announced to the editor together with the agent's own commands: it is
added to each list of commands that the agent sends for a session. If the agent has sent no list by
the time the session is open, a list with `/terminal` alone is sent.
"""

import re
import shlex
from collections.abc import Callable
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import structlog
import trio
from msgspec import Raw

from acpterm.acp.raw_json import items, members, text
from acpterm.client.chat.actions import DESCRIPTION, HINT, NAME
from acpterm.client.envelope import Envelope, cancelled_id
from acpterm.client.proxy.chat_runner import ActionRunner, EditorRequests, OpenClient
from acpterm.client.proxy.display import fenced
from acpterm.client.sanitize import escape_invisible_text
from acpterm.client.session_update import SESSION_UPDATE, Update
from acpterm.jsonrpc import (
    INTERNAL_ERROR,
    Id,
    RpcError,
    encode_error,
    encode_notification,
    encode_response,
)
from acpterm.link.errors import root_error
from acpterm.runtime.send_queue import SendQueue

COMMANDS_UPDATE: Final = "available_commands_update"
_COMMAND: Final = {"name": NAME, "description": DESCRIPTION, "input": {"hint": HINT}}
_PROMPT: Final = re.compile(rf"\s*/{NAME}(?!\S)(.*)", re.DOTALL)


def words_of(prompt: Raw | None) -> str | None:
    """Return the text after `/terminal` in the content blocks of a prompt; None if it has none."""
    words: str | None = None
    for block in map(members, items(prompt)):
        kind = text(block.get("type"))
        if kind == "text":
            content = text(block.get("text")) or ""
            if words is not None:
                words += content
                continue
            found = _PROMPT.fullmatch(content)
            if found is None:
                return None
            words = found[1]
        # A resource after a space is a file that the user mentions. Others are context of the
        # editor's.
        elif kind in ("resource", "resource_link") and words is not None and words[-1:].isspace():
            resource = members(block.get("resource")) if kind == "resource" else block
            path = _path(text(resource.get("uri")))
            words += "" if path is None else shlex.quote(path)
    return words


def _path(uri: str | None) -> str | None:
    try:
        parts = urlsplit(uri or "")
    except ValueError:
        return None
    return unquote(parts.path) if parts.scheme == "file" and parts.path else None


def with_command(update: Update) -> bytes:
    """Encode an agent's list of commands with `/terminal` added."""
    commands: list[Any] = [
        command
        for command in items(update.fields.get("availableCommands"))
        if text(members(command).get("name")) != NAME
    ]
    return update.encode(availableCommands=[*commands, _COMMAND])


def announcement(session: str) -> bytes:
    """Encode a list of commands that has only `/terminal`, for a session without another list."""
    update = {"sessionUpdate": COMMANDS_UPDATE, "availableCommands": [_COMMAND]}
    return encode_notification(SESSION_UPDATE, {"sessionId": session, "update": update})


# Maximum characters of one chunk of an answer.
_CHUNK_CHARS: Final = 32 * 1024

_log = structlog.get_logger("acpterm.chat")


class _Prompt(NamedTuple):
    """A prompt without a response: its id, its session's id, and the cancel scope of its task."""

    id: Id
    session: str
    scope: trio.CancelScope


class Chat:
    """Answers those prompts of one editor that begin with `/terminal`.

    `config` is the path of the settings file given on the command line, if any. `open_client`
    connects to the user's socket. `editor` is the queue of messages to the editor. `send` puts
    lines into this queue. The tasks of prompts run in `nursery`.
    """

    def __init__(
        self,
        config: str | None,
        open_client: OpenClient,
        *,
        editor: SendQueue,
        send: Callable[[list[bytes]], None],
        nursery: trio.Nursery,
    ) -> None:
        self._editor = editor
        self._send = send
        self._nursery = nursery
        self._requests: Final = EditorRequests(send)
        self._runner: Final = ActionRunner(config, open_client, self._requests, send)
        self._prompts: list[_Prompt] = []
        self._cwds: dict[str, str] = {}
        # The sessions for which the command was announced.
        self._announced: set[str] = set()

    def take(self, message: Envelope, has_turn: Callable[[str], bool]) -> bool:
        """Handle a prompt that begins with `/terminal`, or its cancellation."""
        if message.method == "$/cancel_request":
            id_ = cancelled_id(message.params)
            return self._cancel([prompt for prompt in self._prompts if prompt.id == id_])
        if message.method not in ("session/prompt", "session/cancel"):
            return False
        params = members(message.params)
        if (session := text(params.get("sessionId"))) is None:
            return False
        if message.method == "session/cancel":
            # If the agent works on a turn, the message is for the agent too.
            return self._cancel(self._prompts_of(session)) and not has_turn(session)
        words = words_of(params.get("prompt"))
        if words is None or not message.is_request:
            return False
        prompt = _Prompt(message.key, session, trio.CancelScope())
        self._prompts.append(prompt)
        self._nursery.start_soon(self._answer, prompt, words, has_turn(session))
        return True

    def take_response(self, message: Envelope) -> bool:
        """Handle the editor's response to a request of this object, and return True."""
        return self._requests.take_response(message)

    def _prompts_of(self, session: str) -> list[_Prompt]:
        return [prompt for prompt in self._prompts if prompt.session == session]

    @staticmethod
    def _cancel(prompts: list[_Prompt]) -> bool:
        for prompt in prompts:
            prompt.scope.cancel()
        return bool(prompts)

    def fail(self, error: RpcError) -> None:
        """Send `error` as the response to each prompt that has no response yet."""
        prompts, self._prompts = self._prompts, []
        self._send([encode_error(prompt.id, error) for prompt in prompts])

    def open_session(self, session: str, cwd: str) -> None:
        """Record `cwd`, the directory of a session, in which `/terminal start` runs commands."""
        self._cwds[session] = cwd

    def announce(self, session: str) -> None:
        """Announce `/terminal` for a session, unless it was announced with the agent's commands."""
        if session not in self._announced:
            self._announced.add(session)
            self._send([announcement(session)])

    def close_session(self, session: str) -> None:
        """Forget a session, and cancel its prompts."""
        self._cancel(self._prompts_of(session))
        self._cwds.pop(session, None)
        self._announced.discard(session)

    def translate(self, update: Update) -> bytes:
        """Add `/terminal` to `update`, an agent's list of commands; return the line to send."""
        self._announced.add(update.session)
        return with_command(update)

    async def _answer(self, prompt: _Prompt, words: str, is_busy: bool) -> None:
        response = encode_response(prompt.id, {"stopReason": "cancelled"})
        with prompt.scope:
            try:
                session = prompt.session
                answer = await self._runner.run(words, session, self._cwds.get(session))
                await self._say(session, answer, is_busy)
                response = encode_response(prompt.id, {"stopReason": "end_turn"})
            except Exception as error:  # noqa: BLE001  no error of a prompt may end the relay
                _log.exception("a prompt of /terminal has failed")
                message = f"/terminal has failed: {root_error(error) or type(error).__name__}"
                response = encode_error(prompt.id, RpcError(INTERNAL_ERROR, message))
        if prompt in self._prompts:
            self._prompts.remove(prompt)
            self._send([response])

    async def _say(self, session: str, answer: str, is_busy: bool) -> None:
        """Send an answer to the editor, in a code block so that the answer's text is not markup."""
        block = fenced(escape_invisible_text(answer))
        if is_busy:
            block = f"\n\n{block}\n\n"
        for at in range(0, len(block), _CHUNK_CHARS):
            content = {"type": "text", "text": block[at : at + _CHUNK_CHARS]}
            update = {"sessionUpdate": "agent_message_chunk", "content": content}
            params = {"sessionId": session, "update": update}
            self._send([encode_notification(SESSION_UPDATE, params)])
            await self._editor.drain()
