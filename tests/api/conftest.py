"""Fixtures: a daemon that the tests of a file share, and the settings of its clients."""

import pytest

from acpterm.config import Settings
from tests.support.daemon import blocking_daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with blocking_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture(scope="module")
def settings(daemon):
    return Settings(socket=daemon.socket)
