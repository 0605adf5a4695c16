"""Answers the editor's prompts that begin with `/terminal`, which never reach the agent.

Each prompt has a task, which runs the action, sends the answer to the editor as an
`agent_message_chunk`, and responds to the prompt. The agent may work on a turn of the same session
meanwhile. `session/cancel`, `$/cancel_request` and the end of the session end a prompt early, with
the stop reason `cancelled`; a terminal that the prompt has started continues. An unexpected error
is logged, and ends only its prompt, with an error response.

An action on terminals is a sequence of requests on the user's socket (`agents.chat.steps`). The
actions `provider …` read and change the settings; `provider select` asks in the editor.

`/terminal` is announced to the editor in each list of commands that the agent sends for a session.
If the agent has sent none by the time the session is open, a list with `/terminal` alone is sent.
"""

import itertools
import re
import shlex
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import structlog
import trio
from msgspec import Raw

from acpterm.acp.agent import PermissionOption
from acpterm.acp.raw_json import items, members, text
from acpterm.agents import provider_choice
from acpterm.agents.chat.actions import DESCRIPTION, HINT, NAME, ChatAction, UsageError, parse
from acpterm.agents.chat.steps import Intervals, Pause, StartPlace, Steps, list_text, steps
from acpterm.agents.envelope import Envelope, cancelled_id
from acpterm.agents.provider_choice import SelectError, provider_rows, text_of
from acpterm.agents.proxy.display import fenced
from acpterm.agents.proxy.editor_requests import EditorRequests
from acpterm.agents.session_update import SESSION_UPDATE, Update, encode_tool_call_update
from acpterm.commands.client import UserClient
from acpterm.config import ConfigError, load
from acpterm.jsonrpc import (
    INTERNAL_ERROR,
    Id,
    RpcError,
    encode_error,
    encode_notification,
    encode_response,
)
from acpterm.link.daemon import DaemonError, NotRunningError
from acpterm.link.errors import root_error
from acpterm.runtime.sanitize import escape_invisible_text
from acpterm.runtime.send_queue import SendQueue

COMMANDS_UPDATE: Final = "available_commands_update"
_COMMAND: Final = {"name": NAME, "description": DESCRIPTION, "input": {"hint": HINT}}
_PROMPT: Final = re.compile(rf"\s*/{NAME}(?!\S)(.*)", re.DOTALL)
# Maximum characters of one chunk of an answer.
_CHUNK_CHARS: Final = 32 * 1024

_log = structlog.get_logger("acpterm.chat")

OpenClient = Callable[[bool], AbstractAsyncContextManager[UserClient]]
"""Opens a client of the user's API. If no daemon is running, one is started if the argument is
true; else `NotRunningError` is raised."""


class _Prompt(NamedTuple):
    id: Id
    session: str
    scope: trio.CancelScope


class Chat:
    """Answers those prompts of one editor that begin with `/terminal`, with tasks in `nursery`.

    `config` is the settings file given on the command line. `send` puts lines into `editor`.
    """

    def __init__(
        self,
        config: str | None,
        open_client: OpenClient,
        requests: EditorRequests,
        *,
        editor: SendQueue,
        send: Callable[[list[bytes]], None],
        nursery: trio.Nursery,
    ) -> None:
        self._config: Final = config
        self._open_client: Final = open_client
        self._requests: Final = requests
        self._editor = editor
        self._send = send
        self._nursery = nursery
        self._numbers: Final = itertools.count(1)
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

    def _prompts_of(self, session: str) -> list[_Prompt]:
        return [prompt for prompt in self._prompts if prompt.session == session]

    @staticmethod
    def _cancel(prompts: list[_Prompt]) -> bool:
        for prompt in prompts:
            prompt.scope.cancel()
        return bool(prompts)

    def fail(self, error: RpcError) -> None:
        prompts, self._prompts = self._prompts, []
        self._send([encode_error(prompt.id, error) for prompt in prompts])

    def open_session(self, session: str, cwd: str) -> None:
        """Record `cwd`, the directory of a session, in which `/terminal start` runs commands."""
        self._cwds[session] = cwd

    def announce(self, session: str) -> None:
        """Announce `/terminal` for a session, unless it was announced with the agent's commands."""
        if session not in self._announced:
            self._announced.add(session)
            update = {"sessionUpdate": COMMANDS_UPDATE, "availableCommands": [_COMMAND]}
            params = {"sessionId": session, "update": update}
            self._send([encode_notification(SESSION_UPDATE, params)])

    def close_session(self, session: str) -> None:
        self._cancel(self._prompts_of(session))
        self._cwds.pop(session, None)
        self._announced.discard(session)

    def translate(self, update: Update) -> bytes:
        """Add `/terminal` to `update`, an agent's list of commands; return the line to send."""
        self._announced.add(update.session)
        commands: list[Any] = [
            command
            for command in items(update.fields.get("availableCommands"))
            if text(members(command).get("name")) != NAME
        ]
        return update.encode(availableCommands=[*commands, _COMMAND])

    async def _answer(self, prompt: _Prompt, words: str, is_busy: bool) -> None:
        response = encode_response(prompt.id, {"stopReason": "cancelled"})
        with prompt.scope:
            try:
                session = prompt.session
                answer = await self._run(words, session)
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

    async def _run(self, words: str, session: str) -> str:
        try:
            action = parse(words)
        except UsageError as error:
            return str(error)
        answer = ""
        try:
            answer = await self._do(action, session)
        except* (RpcError, DaemonError, ConfigError, SelectError) as errors:
            answer = root_error(errors)
        return answer

    async def _do(self, action: ChatAction, session: str) -> str:
        match action.name, action.target:
            case "provider", "get":
                return f"Current provider: {load(self._config).provider}"
            case "provider", "list":
                settings = load(self._config)
                rows = await provider_rows(settings, settings.provider)
                return f"Available Providers:\n{text_of(rows)}"
            case "provider", "set":
                return await self._select(action.text)
            case "provider", _:
                return await self._ask_for_provider(session)
            case _:
                return await self._use_terminals(action, self._cwds.get(session))

    async def _use_terminals(self, action: ChatAction, cwd: str | None) -> str:
        settings = load(self._config)
        place = StartPlace(cwd, settings.provider)
        action_steps = steps(action, place, Intervals.of(settings))
        answer = ""
        try:
            async with self._open_client(action.name == "start") as client:
                answer = await run_steps(client, action_steps)
        except* NotRunningError:
            if action.name != "list":
                raise
            answer = list_text([], 0)
        return answer

    async def _select(self, name: str) -> str:
        known = provider_choice.names(load(self._config))
        if name not in known:
            raise SelectError(f"there is no provider {name!r}: there are {', '.join(known)}")
        path = await provider_choice.select(name, self._config)
        return f"{provider_choice.selected_text(name, path)}\n/terminal start uses it at once."

    async def _ask_for_provider(self, session: str) -> str:
        """Let the user choose a provider in the editor, by a `session/request_permission`."""
        settings = load(self._config)
        rows = await provider_rows(settings, settings.provider)
        options = [
            PermissionOption(row.name, f"{row.name} ({row.isolation})", "allow_once")
            for row in rows
            if row.works
        ]
        options.append(PermissionOption("keep", f"Keep {settings.provider}", "reject_once"))
        call = session, f"acpterm-provider-{next(self._numbers)}"
        tool_call = {
            "toolCallId": call[1],
            "title": "Select the provider of terminals",
            "kind": "other",
            "status": "pending",
        }
        params = {"sessionId": session, "toolCall": tool_call, "options": options}
        response = await self._requests.request("session/request_permission", params)
        outcome = members(members(response.result).get("outcome"))
        chosen = text(outcome.get("optionId"))
        self._send([encode_tool_call_update(call, status="completed")])
        if chosen in {row.name for row in rows}:
            return await self._select(chosen)
        if text(outcome.get("outcome")) in ("selected", "cancelled"):
            return f"Current provider: {settings.provider}"
        lines = ["Available Providers:", text_of(rows)]
        return "\n".join([*lines, "Select one with /terminal provider set <name>"])


def words_of(prompt: Raw | None) -> str | None:
    """Return the text after `/terminal` in the content blocks of a prompt, if it begins with it."""
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


async def run_steps(client: UserClient, action_steps: Steps) -> str:
    try:
        step = next(action_steps)
        while True:
            if isinstance(step, Pause):
                await trio.sleep(step.seconds)
                step = next(action_steps)
                continue
            try:
                result = await client.call(*step)
            except RpcError as error:
                step = action_steps.throw(error)
            else:
                step = action_steps.send(result)
    except StopIteration as end:
        return str(end.value)
