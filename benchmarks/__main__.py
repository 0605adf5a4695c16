"""`python -m benchmarks`: measures, prints the table, writes the JSON."""

import argparse
import importlib
import sys
import time
from pathlib import Path

from benchmarks.table import machine, table, write

NAMES = ("throughput", "create", "output", "notice", "busy", "memory", "burst", "proxy", "watched")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: a smoke test, no figures"
    )
    parser.add_argument("--only", action="append", choices=NAMES, help="measure only this")
    parser.add_argument(
        "--json",
        metavar="FILE",
        default=str(Path(__file__).with_name("results.json")),
        help="where to write the figures, with their rounds",
    )
    options = parser.parse_args()
    figures = []
    for name in options.only or NAMES:
        before = time.perf_counter()
        print(f"{name} …", end=" ", file=sys.stderr, flush=True)
        figures += importlib.import_module(f"benchmarks.figures.{name}").measure(
            quick=options.quick
        )
        print(f"{time.perf_counter() - before:.0f} s", file=sys.stderr)
    print(table(figures))
    print("\n" + ", ".join(f"{name} {value}" for name, value in machine().items()))
    write(options.json, figures)


if __name__ == "__main__":
    main()
