"""What the policy costs a create: rules and audit log, and the sandbox of bubblewrap.

Two daemons are compared in the same run, with the same client: one with the profile `guarded` and
the audit log, the other without both; then one with the provider `bubblewrap`, the other with
`local`.
"""

import shutil

from benchmarks.client import Client
from benchmarks.figure import Figure, compare, p50, unavailable
from benchmarks.figures.create import create_ms, lives_ms
from benchmarks.processes import Daemon

_MOST_POLICY_MS = 0.5
_MOST_SANDBOX_MS = 15.0


def measure(*, quick: bool) -> list[Figure]:
    rounds, count = (2, 20) if quick else (10, 50)
    return [_policy(rounds, count), _sandbox(rounds, max(5, count // 5))]


def _policy(rounds: int, count: int) -> Figure:
    taken: dict[str, list[float]] = {"with": [], "without": []}
    with (
        Daemon(tracking="subreaper") as usual,
        Daemon(tracking="subreaper", profile="open", audit="false") as bare,
    ):
        clients = {"with": usual.client(), "without": bare.client()}
        _alternate(clients, 20, {name: [] for name in clients})
        for _ in range(rounds):
            _alternate(clients, count, taken)
    return compare(
        "policy and audit: create of true, p50 (baseline: profile open, no audit)", "ms",
        p50(taken["with"]), p50(taken["without"]), more=_MOST_POLICY_MS,
    )  # fmt: skip


def _alternate(clients: dict[str, Client], count: int, taken: dict[str, list[float]]) -> None:
    for _ in range(count):
        for name, client in clients.items():
            taken[name].append(create_ms(client))


def _sandbox(rounds: int, count: int) -> Figure:
    name = "bubblewrap: life of true, p50 (baseline: local)"
    if shutil.which("bwrap") is None:
        return unavailable(name, "ms", f"at most {_MOST_SANDBOX_MS:g} ms more", "no bwrap here")
    taken: dict[str, list[float]] = {"bubblewrap": [], "local": []}
    with Daemon(provider="bubblewrap") as sandboxed, Daemon() as local:
        clients = {"bubblewrap": sandboxed.client(), "local": local.client()}
        for _ in range(rounds):
            for kind, client in clients.items():
                taken[kind] += lives_ms(client, count)
    return compare(name, "ms", p50(taken["bubblewrap"]), p50(taken["local"]), more=_MOST_SANDBOX_MS)
