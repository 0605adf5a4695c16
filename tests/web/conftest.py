"""Fixtures: one daemon with an HTTP server for all tests that share it."""

import pytest

from tests.support.daemon import blocking_daemon
from tests.support.user import user_at
from tests.support.web import WebDaemon, shared_web


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    directory = tmp_path_factory.mktemp("web")
    env = {"ACPTERM_HTTP": "127.0.0.1:0", "XDG_STATE_HOME": str(directory / "state")}
    with blocking_daemon(directory, **env) as running:
        yield running


@pytest.fixture
def web(shared) -> WebDaemon:
    """The HTTP server of the shared daemon, which has no terminals."""
    yield shared_web(shared)
    shared.clear()


@pytest.fixture
async def user(web):
    async with user_at(web.daemon.user_path) as user:
        yield user
