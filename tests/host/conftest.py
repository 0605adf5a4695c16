"""Fixtures: a host in this process, an agent and the user."""

import pytest
import trio.testing

from tests.support.agent import agent_of
from tests.support.hosts import host_here
from tests.support.user import user_of


@pytest.fixture
async def host():
    async with host_here() as host:
        yield host


@pytest.fixture
async def agent(host):
    async with agent_of(host) as agent:
        yield agent


@pytest.fixture
async def user(host):
    async with user_of(host) as user:
        yield user


@pytest.fixture
def running_clock():
    """Return trio's clock, which goes as usual until the test lets it `jump`."""
    return trio.testing.MockClock(rate=1)
