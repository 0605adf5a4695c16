"""`acpterm proxy`: stands between an editor and its agent, and gives both terminals."""

from typing import Literal

import click

from acpterm.cli._async import run
from acpterm.cli._options import BeforeAgent, common, fail, hosted, settings
from acpterm.client.proxy.run import ProxyOptions, run_proxy
from acpterm.client.wirelog import LogError
from acpterm.keeper.client import KeeperLostError
from acpterm.pty.tracking.trees import TrackingError
from acpterm.runtime import logs, stdio


@click.command("proxy", cls=BeforeAgent)
@click.option(
    "--terminals",
    type=click.Choice(["ours", "editor"]),
    help="Whose terminals the agent gets; by default the editor's, if it has any.",
)
@hosted
@common
def command(
    *,
    agent: tuple[str, ...],
    embedded: bool,
    terminals: Literal["ours", "editor"] | None,
    log: str | None,
    config: str | None,
    socket: str | None,
    **flags: object,
) -> None:
    """Stand between an editor and its agent, on stdin and stdout.

    To be put before the agent's command in the editor's settings. AGENT is started, and what the
    two say to each other is passed on, but for terminals: the agent gets those of the daemon,
    which is started if it is not running, and the editor is shown them as best it can.

    The agent ends with the editor, and all that it has started with it.
    """
    chosen = settings(config, socket=socket, **flags)
    logs.configure(chosen.log_level, chosen.log_format)
    try:
        stream = stdio.take_over()
    except OSError as error:
        fail(str(error))
    options = ProxyOptions(agent, config, embedded, terminals, log)
    expected = TrackingError, KeeperLostError, LogError
    raise SystemExit(run(run_proxy, stream, chosen, options, expected=expected))
