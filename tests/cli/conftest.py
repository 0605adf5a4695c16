"""A daemon for the commands, and a connection of the user's to it."""

import pytest

from tests.support.daemon import daemon
from tests.support.user import user_at


@pytest.fixture
async def path(tmp_path):
    async with daemon(tmp_path) as (_, path):
        yield path


@pytest.fixture
async def person(path):
    async with user_at(path.replace("agent.sock", "user.sock")) as person:
        yield person
