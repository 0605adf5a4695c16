import pytest

from acpterm.keeper.client import embedded_keeper


@pytest.fixture
async def keeper():
    """A keeper that is this process's child."""
    async with embedded_keeper() as client:
        yield client
