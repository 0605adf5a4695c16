"""How an editor is shown the terminals that it cannot know: what every way of it has in common.

Sans-IO: updates in, lines out. There are two ways, `as_text` and `as_terminals`; which one is right
for an editor follows from what it says of itself in `initialize`.
"""

from collections.abc import Callable
from typing import Any, Protocol

import trio
from msgspec import Raw

from acpterm.acp.terminal_updates import ExitInfo
from acpterm.client.proxy.capabilities import Capabilities
from acpterm.client.proxy.terminal_presenter import TerminalPresenter
from acpterm.client.proxy.text_presenter import TextPresenter
from acpterm.client.update import SessionKey, Update
from acpterm.config import Settings


class Presenter(Protocol):
    """What one editor is shown. It is given every update of the agent's, in order."""

    @property
    def next_render_at(self) -> float:
        """When `paint` has something to give next, by the clock; `math.inf` for not yet."""

    def on_created(self, terminal: SessionKey, command: str, cwd: str | None) -> None:
        """Learn of a terminal of ours."""

    def translate(self, line: bytes, update: Update) -> list[bytes]:
        """Give the lines that the editor is sent for an update, which came as `line`."""

    def permission(self, params: dict[str, Raw]) -> tuple[list[bytes], dict[str, Any] | None]:
        """Give lines to send first, and the params to pass on; None for the same.

        That is for a `session/request_permission`, whose tool call may embed terminals.
        """

    def on_output(self, terminal: SessionKey, data: bytes, lost: int) -> list[bytes]:
        """Take output of a terminal of ours, with `lost` bytes missing before it."""

    def on_exit(self, terminal: SessionKey, end: ExitInfo) -> list[bytes]:
        """Take the end of a terminal of ours."""

    def render(self, session: str | None = None) -> list[bytes]:
        """Give the lines that are due; all that wait of `session`, whether due or not."""


def new_presenter(
    editor: Capabilities, settings: Settings, *, ours: bool, follow: Callable[[SessionKey], None]
) -> Presenter:
    """Choose for an editor. `ours`: whether the agent's terminals are ours and not the editor's.

    `follow` is called when one of ours is first shown: from then on its output is wanted.
    """
    if editor.shows:
        return TerminalPresenter(follow=follow)
    return TextPresenter(
        clock=trio.current_time,
        follow=follow,
        limit=settings.shown_bytes,
        lines=settings.shown_lines,
        editor_has_terminals=editor.terminals and not ours,
    )
