"""Creates a terminal of the user from the body of a request to `/pty/spawn` of a PTY pool."""

from acpterm.acp.agent_api import Cells
from acpterm.acp.base import Wire
from acpterm.acp.lenient import decode
from acpterm.acp.pool import NAME, PoolTerminal, pool_terminal
from acpterm.acp.user_api import UserCreateRequest
from acpterm.host.user import launch_methods
from acpterm.host.user.connection import UserConnection


class SpawnRequest(Wire):
    """The body of a request: what to run, where, and the terminal's size; all are optional."""

    command: list[str] | None = None
    cwd: str | None = None
    cols: Cells | None = None
    rows: Cells | None = None


async def spawn(user: UserConnection, body: bytes) -> PoolTerminal:
    """Create the terminal that the body of a request describes, for the client of `user`."""
    request = decode(body.strip() or b"{}", SpawnRequest, "the request")
    shell = user.context.env.get("SHELL") or "/bin/sh"
    program, *args = request.command or [shell]
    params = UserCreateRequest(
        command=program,
        args=args,
        cwd=request.cwd,
        name=NAME,
        cols=request.cols,
        rows=request.rows,
    )
    return pool_terminal(await launch_methods.create(user, params))
