"""Which terminals that are over must be forgotten to stay within the limits.

The user has one share, and all agents together have another of the same size, so agents' terminals
never push out the user's. Within the agents' share, the connection that takes the most loses its
oldest terminals first, so no agent pushes out what the others have left.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar


class Retained(Protocol):
    """A terminal that is over: see `entry.TerminalEntry`."""

    @property
    def is_users(self) -> bool:
        """Whether the user owns it."""

    @property
    def connection_id(self) -> str | None:
        """The agent's connection that created it."""

    @property
    def over_since(self) -> float:
        """When the terminal was over, on the boot clock."""

    @property
    def retained_bytes(self) -> int:
        """Bytes of output in memory."""


R = TypeVar("R", bound=Retained)


class Share:
    """The limits of each share: number of terminals, bytes, and age in seconds."""

    def __init__(self, number: int, size: int, age: float) -> None:
        self.count: Final = number
        self.size: Final = size
        self.age: Final = age


def surplus(entries: Iterable[R], share: Share, now: float) -> list[R]:
    """Return the entries that exceed the limits; all `entries` are over."""
    entries = sorted(entries, key=lambda entry: entry.over_since)
    found = [entry for entry in entries if entry.over_since < now - share.age]
    left = entries[len(found) :]
    users: dict[str | None, list[R]] = {None: [entry for entry in left if entry.is_users]}
    agents: defaultdict[str | None, list[R]] = defaultdict(list)
    for entry in left:
        if not entry.is_users:
            agents[entry.connection_id].append(entry)
    return [*found, *_above(users, share), *_above(agents, share)]


def _above(queues: dict[str | None, list[R]], share: Share) -> list[R]:
    """Return what exceeds the limits: each time the oldest entry of the largest queue."""
    found: list[R] = []
    numbers = {owner: len(queue) for owner, queue in queues.items()}
    sizes = {owner: sum(entry.retained_bytes for entry in queue) for owner, queue in queues.items()}
    while sum(numbers.values()) > share.count or sum(sizes.values()) > share.size:
        most = numbers if sum(numbers.values()) > share.count else sizes
        owner = max(most, key=most.__getitem__)
        entry = queues[owner].pop(0)
        numbers[owner] -= 1
        sizes[owner] -= entry.retained_bytes
        found.append(entry)
    return found
