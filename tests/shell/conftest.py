"""Fixtures: a daemon that the tests of a file share, and the settings of its clients."""

from pathlib import Path

import pytest

from acpterm.config import Settings
from tests.support.daemon import blocking_daemon


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the tests of zsh and fish on asyncio as exhaustive: only `.ci/run full` runs them.

    bash is enough to test both event loops.
    """
    here = f"{Path(__file__).parent}/"
    for item in items:
        if not str(item.path).startswith(here):  # pytest passes the tests of all directories
            continue
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if params.get("backend") == "asyncio" and params.get("kind") in ("zsh", "fish"):
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.exhaustive)


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
