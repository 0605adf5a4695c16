"""`python -m benchmarks`: measures the figures, prints them as a table, and writes them as JSON."""

import argparse
import importlib
import sys
import time
import traceback
from pathlib import Path

from benchmarks.table import machine, table, write

NAMES = (
    "startup",
    "quiet",
    "floods",
    "throughput",
    "create",
    "policy",
    "notice",
    "burst",
    "memory",
    "takeover",
    "output",
    "proxy",
    "shell",
    "ssh",
    "slurm",
    "scale",
    "watched",
    "web",
)


def main() -> int:
    """Run the benchmarks; return the exit status: 1 if one raised an error, else 0.

    A figure that misses its target is reported, and is not an error.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: a smoke test, no figures to rely on"
    )
    parser.add_argument("--only", action="append", choices=NAMES, help="measure only this")
    parser.add_argument(
        "--json",
        metavar="FILE",
        default=str(Path(__file__).with_name("results.json")),
        help="where to write the figures and their rounds",
    )
    options = parser.parse_args()
    figures, failed = [], []
    for name in options.only or NAMES:
        before = time.perf_counter()
        print(f"{name} …", end=" ", file=sys.stderr, flush=True)
        module = importlib.import_module(f"benchmarks.figures.{name}")
        try:
            figures += module.measure(quick=options.quick)
        except Exception:  # noqa: BLE001 - the other figures are measured all the same
            traceback.print_exc()
            failed.append(name)
        print(f"{time.perf_counter() - before:.0f} s", file=sys.stderr)
    print(table(figures))
    print("\n" + ", ".join(f"{name} {value}" for name, value in machine().items()))
    missed = [figure.name for figure in figures if figure.met is False]
    print("\n".join(f"missed: {name}" for name in missed))
    print("\n".join(f"failed: {name}" for name in failed))
    write(options.json, figures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
