"""What the person's front ends ask for to read all that a terminal prints; see `person`."""

from acpterm.acp.agent_api import Natural
from acpterm.acp.base import Wire
from acpterm.acp.user_api import ExitInfo, TerminalName, Token


class OutputResponse(Wire):
    """The answer to ``_acpterm/terminal/output``: the text, as an agent is given it.

    `truncated`: some of it is gone from the beginning. It is the text up to `position`.
    """

    text: str
    truncated: bool
    position: int
    exit_status: ExitInfo | None


class FollowRequest(Wire, omit_defaults=True):
    """``_acpterm/terminal/follow``: have the bytes told that came and come after a position.

    Without `since` from the oldest that is kept on, or, with `since_time`, from the first that came
    at that time or later. With `times` each part has the time `at` which it came, unless that is
    unknown: of output from before the daemon's worker was replaced. With `since_time` such output
    is left out. With `stay` (the default) the response comes once the program has ended and all of
    its output was sent; otherwise once all that there is now was sent. A release meanwhile changes
    nothing.

    With `hold` nothing is missed: the program waits while what it has printed was not read. That is
    for the person's own terminals alone.
    """

    terminal_id: TerminalName
    token: Token
    since: Natural | None = None
    since_time: Natural | None = None
    times: bool = False
    stay: bool = True
    hold: bool = False


class FollowedNotification(Wire, omit_defaults=True):
    """``_acpterm/terminal/followed``: the next bytes, in base64.

    `position` is behind them; `lost` counts those before them that are gone.
    """

    token: Token
    data: str
    position: int
    lost: int
    at: int | None = None


class FollowResponse(Wire):
    """The answer to ``_acpterm/terminal/follow``."""

    position: int
    exit_status: ExitInfo | None
