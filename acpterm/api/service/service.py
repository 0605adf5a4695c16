"""`TerminalService`: commands, scripts and sessions, in exchangeable providers.

A session is an interactive program in a terminal of its own, not an ACP session.

A provider is looked up by name: first among the registered ones, then the built-in ones and the
places of the settings, then the entry points of the group ``acpterm.providers``, which are loaded
when they are used.

An error of a provider is raised unchanged. Once `retrieve_session_output` has returned that the
program of a session has ended, the session is no longer in `TerminalService.state`. The session's
complete output can still be read until `terminate_session` is called. `shutdown` continues with the
other sessions if one cannot be terminated, and forgets all of them.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal, Protocol, runtime_checkable

import msgspec
from msgspec import Struct, field

from acpterm.api.client import Client
from acpterm.api.errors import AcptermError
from acpterm.api.judge import LocalJudge
from acpterm.api.service.provider import DaemonProvider
from acpterm.api.service.types import (
    ExecuteCommandOptions,
    ExecuteCommandResult,
    OutputWaitOptions,
    SessionOutput,
    TerminalProvider,
)
from acpterm.config.providers import PROVIDERS

ENTRY_POINTS: Final = "acpterm.providers"
"""The name of the group of entry points for providers.

Each entry point is a function that takes a `Client` and returns a provider.
"""
# Words keep their quotes. A separator within quotes, or after a backslash, is part of a word.
_WORD: Final = re.compile(
    r"""(?:[^\s;|&"'\\]|\\.|"(?:[^"\\]|\\.)*"?|'[^']*'?|\\$|(?<!&)&(?!&))+""", re.DOTALL
)
_DEFAULT: Final = ExecuteCommandOptions()
_AT_ONCE: Final = OutputWaitOptions(0.0, 0.0, 0.0)


class BashOptions(Struct, rename="camel", frozen=True):
    """Options for commands, which the service only stores for its caller."""

    crop_output: int = 10000
    timeout_seconds: float = 60.0


class SessionRecord(Struct, rename="camel"):
    """A session in `TerminalState`, until the service notices that the program has ended.

    `last_position` is up to where its output was read; `start_time` is in seconds since 1970.
    """

    id: str
    command: str
    last_position: int = 0
    start_time: float = field(default_factory=time.time)
    running: bool = True


class TerminalState(Struct, rename="camel"):
    """The state of a terminal service, which can be stored and restored as JSON values."""

    provider_name: str | None = None
    bash: BashOptions = BashOptions()
    interactive_config: OutputWaitOptions = OutputWaitOptions()
    sessions: dict[str, SessionRecord] = field(default_factory=dict)

    def register_session(self, id: str, command: str) -> None:  # noqa: A002
        """Add the session `id`, which starts now and runs `command`."""
        self.sessions[id] = SessionRecord(id, command)

    def update_session_position(self, id: str, position: int) -> None:  # noqa: A002
        """Record up to where the output of a session was read."""
        if (session := self.sessions.get(id)) is not None:
            session.last_position = position

    def get_session(self, id: str) -> SessionRecord | None:  # noqa: A002
        """Return the session with this id; None if there is none."""
        return self.sessions.get(id)

    def remove_session(self, id: str) -> None:  # noqa: A002
        """Forget the session with this id; do nothing if there is none."""
        self.sessions.pop(id, None)

    def list_sessions(self) -> list[SessionRecord]:
        """Return all sessions in the order of their start."""
        return list(self.sessions.values())

    def serialize(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        stored: dict[str, Any] = msgspec.to_builtins(self)
        return stored

    def deserialize(self, data: dict[str, Any]) -> None:
        """Replace the state by what `serialize` has returned."""
        found = msgspec.convert(data, TerminalState)
        for name in self.__struct_fields__:
            setattr(self, name, getattr(found, name))

    def show(self) -> list[str]:
        """Return the state as lines of text."""
        lines = [f"Provider: {self.provider_name or '(none)'}", f"Sessions: {len(self.sessions)}"]
        return lines + [f"  {each.id}: {each.command}" for each in self.sessions.values()]


@runtime_checkable
class _HasCompleteOutput(Protocol):
    async def complete_output(self, session_id: str) -> str:
        """Return all retained output of a session."""


@dataclass(slots=True)
class _Session:
    provider: TerminalProvider
    """The provider that was active at the start of the session; another one may be active now."""
    position: int = 0
    """The position up to which the output was returned. While `TerminalState` has the session, the
    position there counts, since the caller may change it."""


class TerminalService:
    """Executes commands with `client`, which must stay open while the service is used.

    `provider` is the name of the provider that is active at first. `intervals` says how long to
    wait for the output of sessions. `profile` is the policy profile that determines the levels of
    commands. By default, it is the profile that the settings select for the directory `/`, since
    `get_command_safety_level` has no parameter for a directory.

    Methods with a `session_id` raise `AcptermError` if there is no such session. Methods that
    execute or start a command raise it if no provider is active.
    """

    name: Final = "TerminalService"
    description: Final = "Executes commands in terminals, with persistent sessions"

    def __init__(
        self,
        client: Client,
        *,
        provider: str = "local",
        intervals: OutputWaitOptions | None = None,
        profile: str | None = None,
    ) -> None:
        self.client: Final = client
        self.state: Final = TerminalState(
            provider_name=provider, interactive_config=intervals or OutputWaitOptions()
        )
        self._judge = LocalJudge(client.settings, profile)
        self._registered: dict[str, TerminalProvider] = {}
        self._used: dict[str, TerminalProvider] = {}
        self._sessions: dict[str, _Session] = {}

    async def execute_command(
        self, command: str, args: Sequence[str] = (), options: ExecuteCommandOptions = _DEFAULT
    ) -> ExecuteCommandResult:
        """Execute `command`, which is shell text, with `args` quoted and appended.

        Return the result of the command.
        """
        provider = self.require_active_terminal()
        return await provider.execute_command(command, list(args), options)

    async def run_script(
        self, script: str, options: ExecuteCommandOptions = _DEFAULT
    ) -> ExecuteCommandResult:
        """Execute shell text of any number of lines; return its result."""
        return await self.require_active_terminal().run_script(script, options)

    async def start_interactive_session(
        self, command: str, options: ExecuteCommandOptions = _DEFAULT
    ) -> str:
        """Start `command` in a terminal of its own; return the id of the session (``term-1``)."""
        provider = self.require_active_terminal()
        id_ = await provider.start_interactive_session(command, options)
        self._sessions[id_] = _Session(provider)
        self.state.register_session(id_, command)
        return id_

    async def send_input_to_session(self, session_id: str, input: str) -> None:  # noqa: A002
        """Type `input` into a session."""
        await self._session(session_id).provider.send_input(session_id, input)

    async def retrieve_session_output(self, session_id: str) -> SessionOutput:
        """Wait for output of a session, with the intervals of the service.

        Return the output since the last call of this method. Raises `AcptermError` if there is no
        such session.
        """
        session = self._session(session_id)
        record = self.state.get_session(session_id)
        since = session.position if record is None else record.last_position
        intervals = self.state.interactive_config
        found = await session.provider.collect_output(session_id, since, intervals)
        session.position = found.new_position
        if found.is_complete:
            self.state.remove_session(session_id)
        else:
            self.state.update_session_position(session_id, found.new_position)
        return SessionOutput(found.output, found.new_position, found.is_complete)

    async def get_complete_session_output(self, session_id: str) -> str:
        """Return all retained output of a session, without waiting."""
        provider = self._session(session_id).provider
        if isinstance(provider, _HasCompleteOutput):
            return await provider.complete_output(session_id)
        return (await provider.collect_output(session_id, 0, _AT_ONCE)).output

    async def terminate_session(self, session_id: str) -> None:
        """End a session's program, and forget the session."""
        await self._session(session_id).provider.terminate_session(session_id)
        self._forget(session_id)

    async def shutdown(self) -> None:
        """Terminate and forget all sessions, also those whose providers raise an error.

        If providers raise errors other than `AcptermError`, raise them in an `ExceptionGroup` at
        the end. The service then no longer knows these sessions, although their programs may still
        run: only their providers can end them.
        """
        errors = []
        for session_id, session in list(self._sessions.items()):
            try:
                await session.provider.terminate_session(session_id)
            except AcptermError:  # the session, or the connection, is gone already
                pass
            except Exception as error:  # noqa: BLE001  the other sessions must end, too
                errors.append(error)
            self._forget(session_id)
        if errors:
            raise ExceptionGroup("sessions could not be terminated", errors)

    def _forget(self, session_id: str) -> None:
        self.state.remove_session(session_id)
        self._sessions.pop(session_id, None)

    def get_command_safety_level(
        self, shell_string: str
    ) -> Literal["safe", "unknown", "dangerous"]:
        """Return the level of a command by the policy; do not execute it or ask the user."""
        return self._judge.check(shell_string, None, "/", reads_facts=False).level

    def parse_compound_command(self, command: str) -> list[str]:
        """Split a line at ``&&``, ``||``, ``;`` and ``|``; return the words of all its commands.

        The result is one list of words, which does not show where a command begins.
        """
        return _WORD.findall(command)

    def require_active_terminal(self) -> TerminalProvider:
        """Return the active provider.

        Raises `AcptermError` if no provider is active, or if the active one cannot be loaded.
        """
        if self.state.provider_name is None:
            raise AcptermError("no provider is active: call set_active_terminal")
        return self.require_terminal_provider_by_name(self.state.provider_name)

    def set_active_terminal(self, provider_name: str) -> None:
        """Make a provider the active one.

        Raises `AcptermError` if there is no such provider, or if it cannot be loaded.
        """
        self.require_terminal_provider_by_name(provider_name)
        self.state.provider_name = provider_name

    def register_terminal_provider(self, name: str, provider: TerminalProvider) -> None:
        """Add a provider; it replaces one with the same name."""
        self._registered[name] = provider

    def require_terminal_provider_by_name(self, name: str) -> TerminalProvider:
        """Return the provider with this name.

        Raises `AcptermError` if there is none, or if its entry point cannot be loaded.
        """
        if (registered := self._registered.get(name)) is not None:
            return registered
        if name not in self._used:
            self._used[name] = self._make(name)
        return self._used[name]

    def get_available_providers(self) -> list[str]:
        """Return the names of all providers. Entry points are not loaded for this."""
        places = self.client.settings.places
        return list(dict.fromkeys([*PROVIDERS, *places, *self._registered, *_plugins()]))

    def _make(self, name: str) -> TerminalProvider:
        if name in PROVIDERS or name in self.client.settings.places:
            return DaemonProvider(self.client, name)
        if (plugin := _plugins().get(name)) is None:
            known = ", ".join(self.get_available_providers())
            raise AcptermError(f"there is no provider {name!r}; there are {known}")
        try:
            provider: TerminalProvider = plugin.load()(self.client)
        except Exception as error:
            raise AcptermError(
                f"the provider {name!r} cannot be loaded from {plugin.value}: {error}"
            ) from error
        return provider

    def _session(self, session_id: str) -> _Session:
        try:
            return self._sessions[session_id]
        except KeyError:
            known = ", ".join(self._sessions) or "none"
            raise AcptermError(f"there is no session {session_id!r}; there are: {known}") from None


def _plugins() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}
