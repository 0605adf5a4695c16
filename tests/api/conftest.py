"""Fixtures: a daemon that the tests of a file share, and the settings of its clients."""

import pytest

from acpterm.config import Settings
from acpterm.link import endpoint
from tests.support.daemon import blocking_daemon
from tests.support.depth import DEADLINE_S


@pytest.fixture(autouse=True)
def patient_goodbye(monkeypatch):
    """Wait until the daemon has noticed the end of a connection, even if it is slow.

    Until then, it takes this process for an agent's, and refuses the user's socket to it.
    """
    monkeypatch.setattr(endpoint, "_GOODBYE_TIMEOUT_S", DEADLINE_S)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with blocking_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture(scope="module")
def settings(daemon):
    return Settings(socket=daemon.socket)
