"""Chooses the terminals to forget, of those that are over, to stay within the limits.

A terminal is over when it is released, or when the user owns it and its program has exited
(`TerminalEntry.is_over`). The limits apply to the user's terminals, and separately to those of all
agents together, so terminals of agents never displace terminals of the user. A terminal that an
agent has given to the user counts as the agent's. Among the agents'
connections, the one with the most terminals or bytes loses its oldest terminals first, so an agent
with many terminals does not displace those of other agents.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from acpterm.host.entry import TerminalEntry


class RetentionLimits(NamedTuple):
    """For the user's terminals, and for those of all agents; `age` in seconds."""

    number: int
    size: int
    age: float


def surplus(
    entries: Iterable[TerminalEntry], limits: RetentionLimits, now: float
) -> list[TerminalEntry]:
    """Return those of `entries`, which are over, that must be forgotten to stay within `limits`."""
    entries = sorted(entries, key=lambda entry: entry.over_since)
    found = [entry for entry in entries if entry.over_since < now - limits.age]
    left = entries[len(found) :]
    users: dict[str | None, list[TerminalEntry]] = {
        None: [entry for entry in left if entry.is_trusted]
    }
    agents: defaultdict[str | None, list[TerminalEntry]] = defaultdict(list)
    for entry in left:
        if not entry.is_trusted:
            agents[entry.record.connection].append(entry)
    return [*found, *_above(users, limits), *_above(agents, limits)]


def _above(
    queues: dict[str | None, list[TerminalEntry]], limits: RetentionLimits
) -> list[TerminalEntry]:
    """Remove entries, oldest of the largest owner first, until all are within limits."""
    found: list[TerminalEntry] = []
    numbers = {owner: len(queue) for owner, queue in queues.items()}
    sizes = {
        owner: sum(entry.terminal.retained_bytes for entry in queue)
        for owner, queue in queues.items()
    }
    while sum(numbers.values()) > limits.number or sum(sizes.values()) > limits.size:
        most = numbers if sum(numbers.values()) > limits.number else sizes
        owner = max(most, key=most.__getitem__)
        entry = queues[owner].pop(0)
        numbers[owner] -= 1
        sizes[owner] -= entry.terminal.retained_bytes
        found.append(entry)
    return found
