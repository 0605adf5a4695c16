"""`acpterm stdio`: serve the agent that spawned this command.

The terminals are those of the daemon; with `--embedded`, this process runs them.
"""

import click

from acpterm.agents.stdio import relay_stdio
from acpterm.cli._async import run
from acpterm.cli._options import common, fail, settings
from acpterm.host.daemon import serve_stdio
from acpterm.keeper.reports import KeeperLostError
from acpterm.link.daemon import DaemonError
from acpterm.pty.tracking.trees import TrackingError
from acpterm.runtime import logs, stdio
from acpterm.runtime.blocking_io import take_descriptors


@click.command("stdio")
@click.option("--socket", metavar="PATH", help="Use the daemon that listens at PATH.")
@click.option(
    "--embedded", is_flag=True, help="Host the terminals in this process, without a daemon."
)
@common
def command(config: str | None, socket: str | None, embedded: bool, **flags: object) -> None:
    """Serve the agent that spawned acpterm, on stdin and stdout.

    Each line is a JSON-RPC message. The terminals are those of the daemon, which is started if it
    is not running. When stdin ends, the agent's terminals are killed, pending requests are
    answered, and the command exits. Logs go to stderr.
    """
    chosen = settings(config, socket=socket, **flags)
    logs.configure(chosen.log_level, chosen.log_format)
    try:
        reads, writes = take_descriptors()
    except OSError as error:
        fail(str(error))
    if embedded:
        stream = stdio.StdioStream(reads, writes)
        run(serve_stdio, chosen, stream, expected=(TrackingError, KeeperLostError))
    else:
        run(relay_stdio, reads, writes, chosen, config, expected=(DaemonError,))
