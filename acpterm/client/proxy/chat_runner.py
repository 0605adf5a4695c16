"""Runs the actions of the chat command `/terminal` for `chat`, and returns their answers as text.

An action on terminals is a sequence of requests on the user's socket (`client.chat.steps`), for
which a connection is opened. The actions `provider …` read and change the settings
(`provider_choice`); `provider select` asks the user in the editor.
"""

import itertools
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

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
from acpterm.client.chat.steps import Intervals, Pause, Place, Steps, list_text, steps
from acpterm.client.envelope import Envelope
from acpterm.client.host_connection import ConnectUser
from acpterm.client.provider_choice import SelectError, provider_rows, text_of
from acpterm.client.session_update import encode_tool_call_update
from acpterm.client.user.client import UserClient, open_user_client, user_client_on
from acpterm.config import ConfigError, Settings, load
from acpterm.jsonrpc import RpcError, encode_notification, encode_request
from acpterm.link.daemon import DaemonError, NotRunningError
from acpterm.link.errors import root_error

_PREFIX_BYTES: Final = 16


class EditorRequests:
    """Sends requests of the proxy itself to the editor; `send` queues lines for the editor.

    Their ids begin with random text, so they differ from those of the agent. Responses to them,
    even late ones, are not passed on to the agent.
    """

    def __init__(self, send: Callable[[list[bytes]], None]) -> None:
        self._send = send
        self._prefix: Final = f"acpterm-{secrets.token_hex(_PREFIX_BYTES)}-"
        self._numbers = itertools.count(1)
        self._pending: dict[str, tuple[trio.Event, list[Envelope]]] = {}

    async def request(self, method: str, params: Any) -> Envelope:
        """Send a request, wait for the response, and return it, even if it is an error."""
        id_ = f"{self._prefix}{next(self._numbers)}"
        received, responses = self._pending[id_] = trio.Event(), []
        self._send([encode_request(id_, method, params)])
        try:
            await received.wait()
        except trio.Cancelled:
            self._send([encode_notification("$/cancel_request", {"requestId": id_})])
            raise
        finally:
            del self._pending[id_]
        return responses[0]

    def take_response(self, message: Envelope) -> bool:
        """Handle the editor's response to a request of this object, and return True."""
        if not isinstance(message.id, str) or not message.id.startswith(self._prefix):
            return False
        if pending := self._pending.get(message.id):
            received, responses = pending
            responses.append(message)
            received.set()
        return True


OpenClient = Callable[[bool], AbstractAsyncContextManager[UserClient]]
"""Opens a client of the user's API. If no daemon is running, and the argument is true, a daemon is
started; if the argument is false, `NotRunningError` is raised."""


class ActionRunner:
    """Runs the actions that the user of one editor requests with `/terminal`.

    `config` is the path of the settings file given on the command line, if any. `open_client`
    connects to the user's socket. `requests` sends requests to the editor, and `send` puts lines
    into the queue of messages to the editor.
    """

    def __init__(
        self,
        config: str | None,
        open_client: OpenClient,
        requests: EditorRequests,
        send: Callable[[list[bytes]], None],
    ) -> None:
        self._config: Final = config
        self._open_client: Final = open_client
        self._requests: Final = requests
        self._send: Final = send
        self._numbers: Final = itertools.count(1)

    async def run(self, words: str, session: str, cwd: str | None) -> str:
        """Run the action in `words`, the text after `/terminal`; return the text of the answer."""
        try:
            action = parse(words)
        except UsageError as error:
            return str(error)
        answer = ""
        try:
            answer = await self._do(action, session, cwd)
        except* (RpcError, DaemonError, ConfigError, SelectError) as errors:
            answer = root_error(errors)
        return answer

    async def _do(self, action: Action, session: str, cwd: str | None) -> str:
        match action:
            case ProviderGet():
                return f"Current provider: {load(self._config).provider}"
            case ProviderList():
                settings = load(self._config)
                rows = await provider_rows(settings, settings.provider)
                return f"Available Providers:\n{text_of(rows)}"
            case ProviderSet(name):
                return await self._select(name)
            case ProviderSelect():
                return await self._ask_for_provider(session)
            case _:
                return await self._use_terminals(action, cwd)

    async def _use_terminals(self, action: TerminalAction, cwd: str | None) -> str:
        settings = load(self._config)
        place = Place(cwd, settings.provider)
        action_steps = steps(action, place, Intervals.of(settings))
        answer = ""
        try:
            async with self._open_client(isinstance(action, Start)) as client:
                answer = await _run(client, action_steps)
        except* NotRunningError:
            if not isinstance(action, ListTerminals):
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


async def _run(client: UserClient, action_steps: Steps) -> str:
    """Carry out the steps of an action one after the other; return the text of the answer."""
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


def client_opener(
    settings: Settings, config: str | None, connect_user: ConnectUser | None
) -> OpenClient:
    """Return the function that opens a client of the user's API."""

    @asynccontextmanager
    async def open_client(start: bool) -> AsyncIterator[UserClient]:
        if connect_user is None:
            async with open_user_client(settings, config, start=start) as client:
                yield client
        else:
            async with user_client_on(await connect_user(), "the host", settings) as client:
                yield client

    return open_client
