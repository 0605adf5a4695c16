"""Answers the editor's prompts that begin with `/terminal`, which never reach the agent.

Each prompt has a task, which connects to the user's socket, sends the requests of the action
(`client.chat`), and sends the answer as an `agent_message_chunk`, and the response to the prompt.
The agent may work on a turn of the same session meanwhile. A prompt ends early, with `cancelled`,
by `session/cancel`, `$/cancel_request`, or the end of the session; a terminal that it has started
runs on. An error that is not expected is logged, and ends only its prompt, with an error response.

The command is announced to the editor beside the agent's own commands: in each list of commands
that the agent sends for a session, and on its own once the session is open, if the agent has sent
none by then.
"""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

import structlog
import trio

from acpterm.acp.agent import PermissionOption
from acpterm.acp.raw_json import members, text
from acpterm.client import provider_choice
from acpterm.client.chat.actions import (
    Action,
    ListTerminals,
    ProviderGet,
    ProviderList,
    ProviderSelect,
    ProviderSet,
    Start,
    TerminalAction,
    UsageError,
    parse,
)
from acpterm.client.chat.steps import Intervals, Pause, Place, Steps, steps
from acpterm.client.chat.texts import list_text
from acpterm.client.daemon import DaemonError, NotRunningError
from acpterm.client.envelope import Envelope, cancelled_id
from acpterm.client.errors import root_error
from acpterm.client.provider_choice import SelectError, provider_rows, text_of
from acpterm.client.proxy.chat_prompt import announcement, with_command, words_of
from acpterm.client.proxy.display import fenced
from acpterm.client.proxy.editor_requests import EditorRequests
from acpterm.client.sanitize import escape_invisible_text
from acpterm.client.update import SESSION_UPDATE, Update, encode_tool_call_update
from acpterm.client.user.client import UserClient, open_user_client, user_client_on
from acpterm.config import ConfigError, Settings, load
from acpterm.jsonrpc import (
    INTERNAL_ERROR,
    Id,
    RpcError,
    encode_error,
    encode_notification,
    encode_response,
)
from acpterm.runtime.send_queue import SendQueue
from acpterm.runtime.threads import run_blocking

# Maximum characters of one chunk of an answer.
_CHUNK_CHARS: Final = 32 * 1024

_log = structlog.get_logger("acpterm.chat")

OpenClient = Callable[[bool], AbstractAsyncContextManager[UserClient]]
"""Opens a client of the user's socket; if the argument is true, starts a daemon that is missing."""


class _Prompt(NamedTuple):
    """A prompt without a response: its id and session, and the scope of its task."""

    id: Id
    session: str
    scope: trio.CancelScope


class Chat:
    """Answers the prompts of one editor.

    `config` is the path of the settings file given on the command line, if any. `open_client`
    connects to the user's socket. `editor` is the queue of messages to the editor, and `send` puts
    lines into it.
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
        self._config = config
        self._open_client = open_client
        self._editor = editor
        self._send = send
        self._nursery = nursery
        self._requests: Final = EditorRequests(send)
        self._prompts: list[_Prompt] = []
        self._cwds: dict[str, str] = {}
        # The sessions whose editor knows the command.
        self._announced: set[str] = set()
        self._numbers = itertools.count(1)

    def take(self, message: Envelope, has_turn: Callable[[str], bool]) -> bool:
        """Handle a prompt that begins with `/terminal`, or its cancellation.

        Return False for any other message. `has_turn` returns whether the agent works on a turn of
        a session.
        """
        if message.method == "$/cancel_request":
            id_ = cancelled_id(message.params)
            return self._cancel([prompt for prompt in self._prompts if prompt.id == id_])
        if message.method not in ("session/prompt", "session/cancel"):
            return False
        params = members(message.params)
        if (session := text(params.get("sessionId"))) is None:
            return False
        if message.method == "session/cancel":
            # It is for the agent too, if the agent works on a turn.
            return self._cancel(self._prompts_of(session)) and not has_turn(session)
        words = words_of(params.get("prompt"))
        if words is None or not message.is_request:
            return False
        prompt = _Prompt(message.key, session, trio.CancelScope())
        self._prompts.append(prompt)
        self._nursery.start_soon(self._answer, prompt, words, has_turn(session))
        return True

    def take_response(self, message: Envelope) -> bool:
        """Handle a response of the editor to a request of ours; return False for any other."""
        return self._requests.take_response(message)

    def _prompts_of(self, session: str) -> list[_Prompt]:
        return [prompt for prompt in self._prompts if prompt.session == session]

    @staticmethod
    def _cancel(prompts: list[_Prompt]) -> bool:
        for prompt in prompts:
            prompt.scope.cancel()
        return bool(prompts)

    def fail(self, error: RpcError) -> None:
        """Send `error` as the response to each prompt that has none."""
        prompts, self._prompts = self._prompts, []
        self._send([encode_error(prompt.id, error) for prompt in prompts])

    def open_session(self, session: str, cwd: str) -> None:
        """Record the directory of a session that is open from now on."""
        self._cwds[session] = cwd

    def announce(self, session: str) -> None:
        """Announce the command for a session, unless it was announced with the agent's own."""
        if session not in self._announced:
            self._announced.add(session)
            self._send([announcement(session)])

    def close_session(self, session: str) -> None:
        """Forget a session, and cancel its prompts."""
        self._cancel(self._prompts_of(session))
        self._cwds.pop(session, None)
        self._announced.discard(session)

    def translate(self, update: Update) -> bytes:
        """Return an agent's list of commands with ours added."""
        self._announced.add(update.session)
        return with_command(update)

    async def _answer(self, prompt: _Prompt, words: str, is_busy: bool) -> None:
        response = encode_response(prompt.id, {"stopReason": "cancelled"})
        with prompt.scope:
            try:
                await self._say(prompt.session, await self._perform(words, prompt.session), is_busy)
                response = encode_response(prompt.id, {"stopReason": "end_turn"})
            except Exception as error:  # noqa: BLE001  whatever it is, the relay must not end
                _log.exception("a prompt of /terminal has failed")
                message = f"/terminal has failed: {root_error(error) or type(error).__name__}"
                response = encode_error(prompt.id, RpcError(INTERNAL_ERROR, message))
        if prompt in self._prompts:
            self._prompts.remove(prompt)
            self._send([response])

    async def _say(self, session: str, answer: str, is_busy: bool) -> None:
        """Send an answer as text in which nothing is markup, apart from the agent's text."""
        block = fenced(escape_invisible_text(answer))
        if is_busy:
            block = f"\n\n{block}\n\n"
        for at in range(0, len(block), _CHUNK_CHARS):
            content = {"type": "text", "text": block[at : at + _CHUNK_CHARS]}
            update = {"sessionUpdate": "agent_message_chunk", "content": content}
            params = {"sessionId": session, "update": update}
            self._send([encode_notification(SESSION_UPDATE, params)])
            await self._editor.drain()

    async def _perform(self, words: str, session: str) -> str:
        """Do what the user asks for; return the answer, or the error."""
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

    async def _do(self, action: Action, session: str) -> str:
        match action:
            case ProviderGet():
                return f"Current provider: {load(self._config).provider}"
            case ProviderList():
                rows = await provider_rows(load(self._config))
                return f"Available Providers:\n{text_of(rows)}"
            case ProviderSet(name):
                return await self._select(name)
            case ProviderSelect():
                return await self._ask_for_provider(session)
            case _:
                return await self._use_terminals(action, session)

    async def _use_terminals(self, action: TerminalAction, session: str) -> str:
        settings = load(self._config)
        place = Place(self._cwds.get(session), settings.provider)
        work = steps(action, place, Intervals.of(settings))
        answer = ""
        try:
            async with self._open_client(isinstance(action, Start)) as client:
                answer = await _run(client, work)
        except* NotRunningError:
            if not isinstance(action, ListTerminals):
                raise
            answer = list_text([], 0)
        return answer

    async def _select(self, name: str) -> str:
        known = provider_choice.names(load(self._config))
        if name not in known:
            raise SelectError(f"there is no provider {name!r}: there are {', '.join(known)}")
        path = await run_blocking(partial(provider_choice.select, name, self._config))
        why = provider_choice.override(name)
        lines = [provider_choice.selected_text(name, path), *([] if why is None else [why])]
        return "\n".join([*lines, "/terminal start uses it at once."])

    async def _ask_for_provider(self, session: str) -> str:
        """Let the user choose a provider in the editor; without an answer, list them."""
        settings = load(self._config)
        rows = await provider_rows(settings)
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


async def _run(client: UserClient, work: Steps) -> str:
    """Send the requests of `work` one after the other; return the text of the answer."""
    try:
        step = next(work)
        while True:
            if isinstance(step, Pause):
                await trio.sleep(step.seconds)
                step = next(work)
                continue
            try:
                result = await client.call(*step)
            except RpcError as error:
                step = work.throw(error)
            else:
                step = work.send(result)
    except StopIteration as end:
        return str(end.value)


def client_opener(
    settings: Settings, config: str | None, connect_user: Callable[[], trio.abc.Stream] | None
) -> OpenClient:
    """Return a function that opens a client of the daemon, or of a host in this process.

    `connect_user` connects to the host in this process; None to use the daemon.
    """

    @asynccontextmanager
    async def open_client(start: bool) -> AsyncIterator[UserClient]:
        if connect_user is None:
            async with open_user_client(settings, config, start=start) as client:
                yield client
        else:
            async with user_client_on(connect_user(), "the host", settings) as client:
                yield client

    return open_client
