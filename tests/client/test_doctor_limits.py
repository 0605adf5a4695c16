"""The trials of limits by `acpterm doctor` without control groups; `tests/guest` has the rest."""

import pytest

from acpterm.client.user.doctor import limits
from acpterm.config import Settings
from tests.support.depth import DEADLINE_S


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Give the programs of the trials longer: a busy machine may start them late."""
    monkeypatch.setattr(limits, "_TIMEOUT_S", DEADLINE_S)


@pytest.mark.long
async def test_doctor_tells_enforced_limits_from_those_that_cannot_be():
    enforced, refused = await limits.limits(Settings(tracking="subreaper"))
    assert (enforced.state, enforced.found) == ("ok", "enforced here: open_files, file_size")
    text = "not enforced here: memory, cpu, processes, disk_io: it needs a control group"
    assert refused.state == "missing"
    assert refused.found.startswith(text)


async def test_doctor_reports_a_limit_that_is_not_seen_to_work(monkeypatch):
    trial = limits._TRIALS["open_files"]
    monkeypatch.setitem(limits._TRIALS, "open_files", trial._replace(program="print('no limit')"))
    results = await limits.limits(Settings(tracking="subreaper"))
    found = "open_files was set, but was not seen to work: no limit"
    assert [(result.state, result.found) for result in results if result.state == "problem"] == [
        ("problem", found)
    ]
