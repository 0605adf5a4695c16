"""Chooses the terminals to forget, of those that are over, to stay within the limits.

A terminal is over when it is released, or when the user owns it and its program has exited
(`TerminalEntry.is_over`). The user has one share of the memory, and all agents together have
another share of the same size, so terminals of agents never displace terminals of the user. Within
the agents' share, the connection that takes the most loses its oldest terminals first, so an agent
with many terminals does not displace those of other agents.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar


class Retained(Protocol):
    """A terminal that is over. `entry.TerminalEntry` implements it."""

    @property
    def is_users(self) -> bool:
        """Whether the user owns the terminal."""

    @property
    def connection_id(self) -> str | None:
        """The id of the agent's connection that created the terminal; None if the user did."""

    @property
    def over_since(self) -> float:
        """Since when the terminal is over, in seconds of the boot clock."""

    @property
    def retained_bytes(self) -> int:
        """The memory that the terminal's output takes, in bytes."""


R = TypeVar("R", bound=Retained)


class Share:
    """The limits of a share: number of terminals, bytes of output, and age in seconds."""

    def __init__(self, number: int, size: int, age: float) -> None:
        self.count: Final = number
        self.size: Final = size
        self.age: Final = age


def surplus(entries: Iterable[R], share: Share, now: float) -> list[R]:
    """Return those of `entries` that must be forgotten to stay within the limits of each share.

    All `entries` are over. `now` is the time of the boot clock, in seconds.
    """
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
    """Return the entries that exceed the limits of one share.

    `queues` has the entries by owner, oldest first. While a limit is exceeded, the oldest entry of
    the owner that takes the most is removed.
    """
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
