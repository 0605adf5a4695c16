"""Fixtures: one daemon for all tests that share it, and a connection to its user socket."""

import pytest

from tests.support.agent import agent_at
from tests.support.daemon import BlockingDaemon, blocking_daemon, user_socket
from tests.support.user import user_at


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    with blocking_daemon(tmp_path_factory.mktemp("shared")) as running:
        yield running


@pytest.fixture
def path(shared: BlockingDaemon):
    """The socket of the shared daemon, which has no terminals."""
    yield shared.socket
    shared.clear()


@pytest.fixture
async def user(path):
    async with user_at(user_socket(path)) as user:
        yield user


@pytest.fixture
async def agent(path):
    async with agent_at(path) as agent:
        yield agent
