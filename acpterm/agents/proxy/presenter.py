"""The interface of the presenters, which show an editor the terminals that the agent uses."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import trio
from msgspec import Raw

from acpterm.acp.terminal_updates import ProgramExit
from acpterm.agents.proxy.capabilities import Capabilities
from acpterm.agents.proxy.terminal_presenter import TerminalPresenter
from acpterm.agents.proxy.text_presenter import TextPresenter
from acpterm.agents.session_update import SessionKey, Update
from acpterm.config import Settings


class Presenter(Protocol):
    """Turns the agent's updates, in order, and the terminals' output into lines for the editor.

    It does no I/O. A line that a method returns is to be sent to the editor at once.
    """

    @property
    def next_render_at(self) -> float:
        """When to call `render` next, by trio's clock; `math.inf` if no lines are delayed."""

    def on_created(self, terminal: SessionKey, command: str, cwd: str | None) -> None:
        """Record a terminal that the host has created."""

    def translate(self, line: bytes, update: Update) -> list[bytes]:
        """Return the lines to send in place of `line`, the message with `update`."""

    def before_end(self, update: Update) -> tuple[list[bytes], Iterable[SessionKey]]:
        """Prepare for `update`, the end of a tool call, which is passed to `translate` afterwards.

        Return the lines to send before, and the call's terminals, whose output has to be passed to
        `on_output` before `translate`.
        """

    def permission(self, params: dict[str, Raw]) -> tuple[list[bytes], dict[str, Any] | None]:
        """Present the terminals in the tool call of a `session/request_permission`.

        Return the lines to send before the request, and the new params; None to leave them as they
        are.
        """

    def on_output(self, terminal: SessionKey, data: bytes, lost: int) -> list[bytes]:
        """Take output of a terminal of the host, before which `lost` bytes are missing."""

    def on_exit(self, terminal: SessionKey, end: ProgramExit) -> list[bytes]:
        """Take the exit of a terminal of the host."""

    def render(self, session: str | None = None) -> list[bytes]:
        """Return the delayed lines that are due, and those of `session` even before."""


def new_presenter(
    editor: Capabilities, settings: Settings, *, ours: bool, follow: Callable[[SessionKey], None]
) -> Presenter:
    """Return the presenter for an editor; `ours`: the host runs the agent's terminals.

    `follow` is called when a terminal of the host is first shown: from then on, its output has to
    be passed to `on_output`.
    """
    if editor.shows_agent_terminals:
        return TerminalPresenter(follow=follow)
    return TextPresenter(
        clock=trio.current_time,
        follow=follow,
        limit=settings.shown_bytes,
        lines=settings.shown_lines,
        live=editor.replaces_content,
        bare=editor.shows_beginnings,
        editor_has_terminals=editor.has_terminals and not ours,
    )
