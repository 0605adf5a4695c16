"""The report of the fault tests: `python -m tests.faults.report REPORT` writes reliability.md.

Each test appends one line of JSON to the file named by `ACPTERM_FAULTS_REPORT`: which fault, how
often, whether everything held, and what was measured.
"""

import json
import os
import platform
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

_PAGE = Path(__file__).parent.parent.parent / "docs" / "internals" / "reliability.md"
_BEGIN = "<!-- table -->\n"
_END = "<!-- end of table -->\n"
_HEADER = (
    "fault",
    "times",
    "held",
    "output checked",
    "until answered again, p50",
    "longest",
)


class Report:
    """The faults of one test, all of one kind."""

    def __init__(self, test: str) -> None:
        self.test = test
        self.fault = ""
        self.times = 0
        self.answered_s: list[float] = []
        """Seconds from each fault until everything responded again."""
        self.longest_answer_s = 0.0
        """The longest latency of any request in seconds."""
        self.checked_bytes = 0
        self.notes: list[str] = []

    def happened(self, fault: str, answered_s: float | None = None) -> None:
        """Count a fault; `answered_s` is the time in seconds until everything responded again."""
        self.fault = fault
        self.times += 1
        if answered_s is not None:
            self.answered_s.append(answered_s)

    def write(self, *, held: bool) -> None:
        """Append the line to the report, if one was requested."""
        path = os.environ.get("ACPTERM_FAULTS_REPORT")
        if path and self.fault:
            line = json.dumps({**vars(self), "held": held}) + "\n"
            # One write: several processes append.
            with Path(path).open("ab", buffering=0) as file:
                file.write(line.encode())


def table(lines: list[dict[str, Any]]) -> str:
    """Return the table of a report in Markdown, a row for each kind of fault."""
    kinds: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        kinds[line["fault"]].append(line)
    rows = [_HEADER, tuple("---" for _ in _HEADER), *(_row(*kind) for kind in kinds.items())]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(fault: str, lines: list[dict[str, Any]]) -> tuple[str, ...]:
    answered = [seconds for line in lines for seconds in line["answered_s"]]
    checked = sum(line["checked_bytes"] for line in lines)
    held = sum(line["times"] for line in lines if line["held"])
    return (
        fault,
        str(sum(line["times"] for line in lines)),
        str(held),
        f"{checked / 1e6:.0f} MB" if checked else "",
        f"{statistics.median(answered):.2f} s" if answered else "",
        f"{max(answered):.2f} s" if answered else "",
    )


def main(path: str) -> None:
    """Write the table of the report at `path` into docs/internals/reliability.md."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    machine = (
        f"{platform.system()} {platform.release()}, {os.cpu_count()} processors, "
        f"Python {platform.python_version()}"
    )
    page = _PAGE.read_text()
    head, _, rest = page.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    _PAGE.write_text(f"{head}{_BEGIN}{table(lines)}\n\n{machine}.\n{_END}{tail}")


if __name__ == "__main__":
    main(*sys.argv[1:])
