"""A daemon for the tests of a file, and windows on it."""

import pytest

from tests.support.desk import Desk, daemon_in
from tests.support.tmux import tmux_server


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with daemon_in(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def desk(daemon, tmp_path):
    with tmux_server(tmp_path / "tmux") as tmux:
        yield Desk(daemon, tmux)
