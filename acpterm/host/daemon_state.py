"""The daemon of a host, as its users see and end it."""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import trio

from acpterm.config import Settings, audit_dir, default_file, default_record_dir, undo_dir
from acpterm.host.web_interface import WebInterface
from acpterm.keeper.client import KeeperClient
from acpterm.pty.processes import now as boot_time


def _nothing() -> None:
    pass


class DaemonInfo(NamedTuple):
    """What a host knows about its daemon; the defaults are for a host that is not in a daemon."""

    agent_socket: str | None = None
    user_socket: str | None = None
    idle_exit_s: float | None = None
    end: Callable[[], None] = _nothing
    reaches_user: bool = True
    """Whether a user may come and answer; if not, unattended questions are refused."""
    web: WebInterface | None = None
    sources: Mapping[str, str] = MappingProxyType({})
    """Where the settings come from, by name; settings with their default value are absent."""

    def own_paths(self, settings: Settings) -> list[str]:
        """Return the paths of acpterm's own files, which programs in a sandbox must not reach."""
        sockets = (self.agent_socket, self.user_socket)
        return [
            *(path for path in sockets if path is not None),
            *((f"{self.agent_socket}.log",) if self.agent_socket else ()),
            *((settings.rules,) if settings.rules else ()),
            settings.record_dir or default_record_dir(),
            audit_dir(settings),
            undo_dir(),
            *(self.web.private_paths if self.web is not None else ()),
            os.path.dirname(default_file()),
        ]


class DaemonState:
    def __init__(
        self, info: DaemonInfo, keeper: KeeperClient, tracking: str, started_at: float
    ) -> None:
        self.info: Final = info
        self.keeper: Final = keeper
        self.tracking: Final = tracking
        self._started_at: Final = started_at
        self.agents = 0
        self.users = 0
        self.changed: Final = trio.lowlevel.ParkingLot()
        """Unparked whenever the result of `Host.is_needed` may have changed."""

    @property
    def uptime(self) -> float:
        return boot_time() - self._started_at

    def forgotten(self, terminal_id: str) -> None:
        """End the shares of a terminal that was removed."""
        if self.info.web is not None:
            self.info.web.end_shares_of(terminal_id)
