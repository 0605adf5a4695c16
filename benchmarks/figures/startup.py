"""The run time of short commands as whole processes.

The baseline is a Python process that only imports click and msgspec, two libraries of acpterm. For
the zipapp, the baseline is the same command run from the checkout. `make bench` builds the zipapp
first.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.client import Client
from benchmarks.figure import Figure, compare, p50
from benchmarks.processes import Daemon

_ROOT = Path(__file__).parents[2]
_BASELINE = [sys.executable, "-c", "import click, msgspec"]
_ACPTERM = [sys.executable, "-m", "acpterm"]
_ZIPAPP = _ROOT / "dist" / "acpterm.pyz"
_COMPLETE = {"_ACPTERM_COMPLETE": "bash_complete", "COMP_WORDS": "acpterm logs ", "COMP_CWORD": "2"}
_AT_MOST = 1.5


def measure(*, quick: bool) -> list[Figure]:
    """Measure `acpterm ls`, `status`, the completion of a terminal's name, and the zipapp."""
    rounds = 3 if quick else 15
    with Daemon() as daemon:
        client = Client(daemon.user_socket)
        client.ask("_acpterm/terminal/create", {"command": "cat", "name": "web"})
        env = _environment(daemon)
        # The completion takes its command line from the environment.
        commands = {
            "acpterm ls": ([*_ACPTERM, "ls"], env),
            "acpterm status": ([*_ACPTERM, "status"], env),
            "completion of a terminal": (_ACPTERM, env | _COMPLETE),
            "": (_BASELINE, env),
        }
        taken: dict[str, list[float]] = {name: [] for name in commands}
        # Alternately, so that other load on the machine affects them alike.
        for _ in range(rounds + 1):
            for name, (argv, environ) in commands.items():
                taken[name].append(_run(argv, environ))
        zipapp = _zipapp(env, rounds) if _ZIPAPP.exists() else []
        client.close()
    # The first round compiles and fills caches.
    baseline = taken.pop("")[1:]
    return [
        compare(
            f"Start of a command: {name}",
            "ms",
            p50(values[1:]),
            p50(baseline),
            at_most=_AT_MOST,
            rounds=values[1:],
            baseline_rounds=baseline,
        )
        for name, values in taken.items()
    ] + zipapp


def _zipapp(env: dict[str, str], rounds: int) -> list[Figure]:
    """Measure `ls` of the zipapp: the first run, which unpacks it, and later ones."""
    ls = [sys.executable, str(_ZIPAPP), "ls"]
    with tempfile.TemporaryDirectory() as cache:
        cached = env | {"XDG_CACHE_HOME": cache}
        later, installed = [], []
        for _ in range(rounds + 1):
            later.append(_run(ls, cached))
            installed.append(_run([*_ACPTERM, "ls"], env))
    first = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as cache:
            first.append(_run(ls, env | {"XDG_CACHE_HOME": cache}))
    return [
        compare(
            f"Start of a command: acpterm.pyz ls{when} (baseline: acpterm ls)",
            "ms",
            p50(values),
            p50(installed[1:]),
            rounds=values,
            baseline_rounds=installed[1:],
        )
        for when, values in (("", later[1:]), (", first run", first))
    ]


def _environment(daemon: Daemon) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACPTERM_")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env | {"ACPTERM_SOCKET": daemon.socket, "XDG_CONFIG_HOME": daemon.directory.name}


def _run(argv: list[str], env: dict[str, str]) -> float:
    """Run a process; return the milliseconds until it has exited."""
    before = time.perf_counter()
    subprocess.run(
        argv, env=env, cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True
    )
    return 1000 * (time.perf_counter() - before)
