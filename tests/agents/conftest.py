"""Fixtures: a daemon that the tests of a file share, and windows that use it."""

import pytest

from tests.support.daemon import blocking_daemon
from tests.support.tmux import tmux_server
from tests.support.windows import Windows


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with blocking_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def windows(daemon, tmp_path):
    with tmux_server(tmp_path / "tmux") as tmux:
        yield Windows(daemon, tmux)
