import pytest

from acpterm.keeper.client import embedded_keeper


@pytest.fixture(autouse=True, scope="module")
def quick_keepers():
    """Start keepers as they are started: they are what is tested here."""


@pytest.fixture
async def keeper():
    """A keeper that is this process's child."""
    async with embedded_keeper() as client:
        yield client
