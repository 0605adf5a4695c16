"""Fixtures: a host in this process, an agent and the user."""

import pytest

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
