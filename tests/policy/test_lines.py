"""Which lines of real work are asked about in `guarded`, and which losses are not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from acpterm.config.profiles import BUILTIN
from acpterm.policy.judge import Judge
from tests.policy.prepared import Prepared, prepare

HERE = Path(__file__).parent
ASKED_OF_WORK_MAX = 0.01
ASKED_OF_LOSSES_MIN = 0.98


def lines(name: str) -> list[str]:
    """Return the lines of a table; ⏎ is a newline, and lines with `## ` are headings."""
    text = (HERE / name).read_text()
    return [one.replace("⏎", "\n") for one in text.split("\n") if one and not one.startswith("## ")]


WORK = lines("work_lines.txt")
LOSSES = [tuple(line.split("\t", 1)) for line in lines("loss_lines.tsv")]
LISTED = lines("listed_lines.txt")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Verdict]]:
    # Not below /tmp, where nothing counts as lost.
    base = Path(tempfile.mkdtemp(prefix="acpterm-", dir=_unlike_tmp()))
