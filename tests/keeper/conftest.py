import pytest

from acpterm.keeper.startup import embedded_keeper
from tests.support.starting import stop_adopting


@pytest.fixture(autouse=True, scope="module")
def quick_keepers():
    """Start keepers as real processes here, unlike the fixture of tests/conftest.py."""


@pytest.fixture(autouse=True, scope="module")
def orphans_are_reaped():
    """Programs that outlive a killed keeper must not become zombies of this process."""
    stop_adopting()


@pytest.fixture
async def keeper():
    """Start a keeper as a child of this process."""
    async with embedded_keeper() as client:
        yield client
