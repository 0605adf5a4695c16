"""A daemon for the tests of a file, and the settings of clients of it."""

import pytest

from acpterm.config import Settings
from tests.support.daemon import blocking_daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with blocking_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def settings(daemon):
    return Settings(socket=daemon.socket)


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return str(tmp_path / "home")
