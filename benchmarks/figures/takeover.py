"""A take-over: the time from the worker's SIGKILL until the next worker responds to a poll."""

import time

from benchmarks.client import SESSION
from benchmarks.figure import Figure, below, p50, unavailable
from benchmarks.processes import Daemon, lines

_AIM_MS = 1000


def measure(*, quick: bool) -> list[Figure]:
    count, rounds = (20, 1) if quick else (100, 5)
    return [
        _take_over(f"take-over of {count} terminals, until the first answer", count, rounds, 0),
        _take_over(
            f"take-over of {count} terminals that have printed 1 MiB each, until the first answer",
            count, rounds, 1 << 20,
        ),
    ]  # fmt: skip


def _take_over(name: str, count: int, rounds: int, size: int) -> Figure:
    taken = []
    for _ in range(rounds):
        # One daemon per round: a keeper gives up if too many workers die in a minute.
        with lines(size) as file, Daemon() as daemon:
            if daemon.worker() in (None, daemon.pid):
                reason = "this version has no worker"
                return unavailable(name, "ms", f"at most {_AIM_MS} ms", reason)
            taken.append(_one(daemon, count, file))
    return below(name, "ms", max(taken), _AIM_MS, p50=p50(taken), rounds=taken)


def _one(daemon: Daemon, count: int, file: str) -> float:
    """Kill the worker while `count` terminals exist, each of which has printed `file`.

    Return the milliseconds from then until a client has resumed its connection and has received the
    output of one terminal from the next worker.
    """
    client = daemon.client()
    command = f"cat {file}; echo printed; exec sleep 1000"
    params = {"sessionId": SESSION, "command": command}
    client.send(b"".join(client.encode("terminal/create", params)[1] for _ in range(count)))
    ids = [client.receive().result["terminalId"] for _ in range(count)]
    terminals = [{"sessionId": SESSION, "terminalId": id_} for id_ in ids]
    for terminal in terminals:
        client.until_output(terminal, "printed\n", 60)
    if client.resume is None:
        raise RuntimeError("initialize gave no secret to resume with")
    daemon.kill_worker()
    before = time.perf_counter()
    client.close()
    client = daemon.client(client.resume)
    output = client.output(terminals[-1])["output"]
    taken = time.perf_counter() - before
    if not client.resumed or not output.endswith("printed\n"):
        raise RuntimeError("the successor does not have the terminal as it was")
    for terminal in terminals:
        client.output(terminal)
    client.close()
    return 1000 * taken
