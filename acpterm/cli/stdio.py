"""`acpterm stdio`: a host for the one agent that spawned it."""

import click

from acpterm.cli.options import common, fail, run, settings
from acpterm.host import logs, serve_stdio, stdio
from acpterm.pty.trees import TrackingError


@click.command("stdio")
@common
def command(config: str | None, **flags: object) -> None:
    """Serve the agent that spawned this, on stdin and stdout.

    One JSON-RPC message a line. It ends when stdin does: the agent's terminals are then killed, and
    what is due is answered. Logs go to stderr.
    """
    chosen = settings(config, **flags)
    logs.configure(chosen.log_level, chosen.log_format)
    try:
        stream = stdio.take_over()
    except OSError as error:
        fail(str(error))
    run(serve_stdio, chosen, stream, expected=(TrackingError,))
