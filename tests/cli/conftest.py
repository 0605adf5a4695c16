"""Fixtures: a daemon, and a connection to its user socket."""

import pytest

from tests.support.daemon import daemon
from tests.support.user import user_at


@pytest.fixture
async def path(tmp_path):
    async with daemon(tmp_path) as (_, path):
        yield path


@pytest.fixture
async def user(path):
    async with user_at(path.replace("agent.sock", "user.sock")) as user:
        yield user
