import pytest

from acpterm.keeper.client import embedded_keeper


@pytest.fixture(autouse=True, scope="module")
def quick_keepers():
    """Start keepers as real processes here, unlike the fixture of tests/conftest.py."""


@pytest.fixture
async def keeper():
    """Start a keeper as a child of this process."""
    async with embedded_keeper() as client:
        yield client
