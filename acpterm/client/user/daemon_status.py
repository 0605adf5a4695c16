"""Reads the status of the daemon, for `acpterm status`.

A daemon is two processes: the keeper, which owns the programs and the listening sockets, and the
worker, which responds to requests. While there is no worker, new connections wait in the queues of
the listening sockets. The keeper then writes to the lock file beside the agents' socket why there
is no worker, and what the user can do about it.
"""

from typing import Final

from acpterm.acp.base import Wire
from acpterm.acp.user_api import StatusResponse
from acpterm.client.daemon import NoAnswerError, NotRunningError, read_lock
from acpterm.client.user.blocking_client import BlockingClient, open_blocking_client
from acpterm.config import Settings

ANSWER_TIMEOUT_S: Final = 3.0
"""Seconds to wait for the response to `initialize`, which a running worker sends at once."""


class NoWorker(Wire):
    """The status of a daemon whose worker does not respond, or that has none.

    `worker_pid` is always None, since only a worker reports its pid. `message` is the keeper's
    explanation why there is no worker. `keeper_pid` and `message` come from the lock file; each is
    None if the lock file does not contain it.
    """

    keeper_pid: int | None
    worker_pid: int | None = None
    message: str | None = None


def daemon_status(
    settings: Settings, config: str | None = None, *, start: bool = False
) -> StatusResponse | NoWorker | None:
    """Return the daemon's status: a `NoWorker` if no worker responds, None if no daemon runs.

    If `start` is true and no daemon runs, start a daemon. `config` is the path of the settings file
    for the new daemon, if it is not the default. Raises `DaemonError` if the daemon cannot be
    started or used, and `RpcError` if the request fails.
    """
    try:
        with open_blocking_client(
            settings, config, start=start, answer_timeout_s=ANSWER_TIMEOUT_S
        ) as client:
            return worker_status(client)
    except NoAnswerError:
        lock = read_lock(settings)
        return NoWorker(keeper_pid=lock.pid, message=lock.message)
    except NotRunningError:
        return None


def source(status: StatusResponse, setting: str) -> str:
    """Return, such as "by default", what has set a setting of the daemon."""
    return f"by {status.sources.get(setting, 'default')}"


def worker_status(client: BlockingClient) -> StatusResponse:
    """Return the daemon's status, as its worker reports it.

    Raises `RpcError` if the request fails, and `DaemonError` if the daemon has ended.
    """
    return client.request_no_params("status", StatusResponse)
