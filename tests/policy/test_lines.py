"""Which lines of real work are asked about in `guarded`, and which losses are not."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from acpterm.config.profiles import BUILTIN, Kind
from acpterm.host import loss_facts
from acpterm.host.loss_facts import LossFacts
from acpterm.policy.judge import Judge
from acpterm.policy.verdict import Verdict
from tests.policy.prepared import Prepared, prepare

ASKED_OF_WORK_MAX = 0.01
ASKED_OF_LOSSES_MIN = 0.98


def rows(name: str) -> list[str]:
    """Return the rows of a table, without headings (`## `). In a row, ⏎ is a newline."""
    text = (Path(__file__).parent / name).read_text().replace("⏎", "\0")
    found = [row for row in text.splitlines() if not row.startswith("## ")]
    return [row.replace("\0", "\n") for row in found]


WORK = rows("work_lines.txt")
LOSSES = [(kind, line) for kind, _, line in (row.partition("\t") for row in rows("loss_lines.tsv"))]
LISTED = rows("listed_lines.txt")


class Lines:
    """Judges lines in the prepared directory, as the host does."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._judge = Judge()
        # Judging changes nothing in the directory, so that facts hold for later lines, too.
        self._findings = {}

    def verdict(self, line: str) -> Verdict:
        """Return the verdict of `guarded` on a line."""
        while True:
            profile = BUILTIN["guarded"]
            found = self._judge.judge(line, None, profile=profile, findings=self._findings)
            if not found.pending:
                return found
            facts = LossFacts(str(self._prepared.shop), home=str(self._prepared.home))
            self._findings.update(facts.find(found.pending))


@pytest.fixture(scope="module")
def judged() -> Iterator[Lines]:
    # Not in /tmp, where nothing is lost.
    memory = "/dev/shm"
    base = tempfile.mkdtemp(prefix="acpterm-", dir=memory if Path(memory).is_dir() else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_facts, "TEMPORARY", ("/tmp", "/private/tmp"))
        yield Lines(prepare(Path(base)))
    shutil.rmtree(base)


def test_tables_have_different_lines_of_each_kind():
    lines = [*WORK, *LISTED, *(line for _, line in LOSSES)]
    assert len(set(lines)) == len(lines)
    assert len(WORK) >= 2000
    assert len(LOSSES) >= 400
    assert {kind for kind, _ in LOSSES} == set(Kind)


def test_guarded_asks_about_at_most_one_percent_of_work(judged):
    found = [(line, judged.verdict(line)) for line in WORK]
    asked = [f"{one.reason}: {line}" for line, one in found if one.decision != "allow"]
    assert len(asked) <= ASKED_OF_WORK_MAX * len(WORK), "\n".join(asked)


def test_guarded_asks_about_losses_and_names_their_kind(judged):
    found = [(kind, line, judged.verdict(line)) for kind, line in LOSSES]
    missed = [
        f"{kind}, found {one.decision} {one.kind}: {line}"
        for kind, line, one in found
        if one.decision != "ask" or one.kind != kind
    ]
    assert len(missed) <= (1 - ASKED_OF_LOSSES_MIN) * len(LOSSES), "\n".join(missed)


def test_guarded_asks_about_what_its_lists_name_even_if_nothing_is_lost(judged):
    assert [line for line in LISTED if judged.verdict(line).decision != "ask"] == []
