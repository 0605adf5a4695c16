import ctypes

import pytest

from acpterm.keeper import startup
from acpterm.keeper.startup import embedded_keeper

_start_embedded = startup._start_embedded
_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture(autouse=True, scope="module")
def orphans_are_reaped():
    """Programs that outlive a killed keeper must not become zombies of this process."""
    # An earlier test may have made this process a subreaper: init reaps them instead.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture(autouse=True)
def started_keeper(monkeypatch):
    """Here, keepers are started as for a user, not forked."""
    monkeypatch.setattr(startup, "_start_embedded", _start_embedded)


@pytest.fixture
async def keeper():
    """Start a keeper as a child of this process."""
    async with embedded_keeper() as client:
        yield client
