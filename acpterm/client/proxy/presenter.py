"""The interface of the presenters, which show an editor the terminals that the agent uses.

A presenter takes the agent's updates and the terminals' output, and returns the lines to send to
the editor; it does no I/O. There are two implementations, `text_presenter` and
`terminal_presenter`; `new_presenter` chooses by the editor's capabilities.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import trio
from msgspec import Raw

from acpterm.acp.terminal_updates import ProgramExit
from acpterm.client.proxy.capabilities import Capabilities
from acpterm.client.proxy.terminal_presenter import TerminalPresenter
from acpterm.client.proxy.text_presenter import TextPresenter
from acpterm.client.session_update import SessionKey, Update
from acpterm.config import Settings


class Presenter(Protocol):
    """Presents the agent's terminals to one editor.

    Every update of the agent must be passed to the presenter, in order.
    """

    @property
    def next_render_at(self) -> float:
        """When to call `render` next, by trio's clock; `math.inf` if no lines are delayed."""

    def on_created(self, terminal: SessionKey, command: str, cwd: str | None) -> None:
        """Record a terminal that the host has created, with its command line.

        `cwd` is the terminal's directory; None if the directory is unknown.
        """

    def translate(self, line: bytes, update: Update) -> list[bytes]:
        """Return the lines to send to the editor in place of `line`, the message with `update`."""

    def before_end(self, update: Update) -> tuple[list[bytes], Iterable[SessionKey]]:
        """Prepare for `update`, the end of a tool call, which is passed to `translate` afterwards.

        Return the lines to send to the editor before, and the call's terminals, whose output has to
        be passed to `on_output` before `translate`.
        """

    def permission(self, params: dict[str, Raw]) -> tuple[list[bytes], dict[str, Any] | None]:
        """Present the terminals that the tool call of a `session/request_permission` embeds.

        `params` are those of the request. Return the lines to send to the editor before the
        request, and the translated params. Return None in place of the params if the request has
        to be passed on unchanged.
        """

    def on_output(self, terminal: SessionKey, data: bytes, lost: int) -> list[bytes]:
        """Return the lines to send to the editor for output of one of the host's terminals.

        `lost` bytes are missing before `data`.
        """

    def on_exit(self, terminal: SessionKey, end: ProgramExit) -> list[bytes]:
        """Return the lines to send to the editor for the exit of one of the host's terminals."""

    def render(self, session: str | None = None) -> list[bytes]:
        """Return the delayed lines that are due, to be sent to the editor.

        Delayed lines of `session` are returned even if they are not due yet.
        """


def new_presenter(
    editor: Capabilities, settings: Settings, *, ours: bool, follow: Callable[[SessionKey], None]
) -> Presenter:
    """Create the presenter for an editor.

    `ours`: the host runs the agent's terminals; otherwise the editor does, if it has terminals.
    `follow` is called with the key of each terminal of the host (the ids of the session and the
    terminal) when the terminal is first shown: from then on, the terminal's output has to be passed
    to `on_output`.
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
