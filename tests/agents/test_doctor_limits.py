"""The limits that `acpterm doctor` can set without control groups; `tests/guest` has the rest."""

from acpterm.commands.doctor import probes
from acpterm.config import Settings


async def test_doctor_tells_enforced_limits_from_those_that_cannot_be():
    enforced, refused = await probes.limits(Settings(tracking="subreaper"))
    assert (enforced.state, enforced.found) == ("ok", "enforced here: open_files, file_size")
    text = "not enforced here: memory, cpu, processes, disk_io: it needs a control group"
    assert refused.state == "missing"
    assert refused.found.startswith(text)
