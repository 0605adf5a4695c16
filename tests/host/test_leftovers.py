"""A host looks for the containers of a killed daemon, even if the user selects `local`."""

import pytest

from acpterm.config import Settings
from acpterm.host.policy import HostPolicy
from acpterm.pty.tracking.marks import Daemon


@pytest.fixture
def engines(tmp_path, monkeypatch):
    """Return a function that installs scripts as container engines.

    The function returns the path of the file to which they write their calls.
    """

    def install(*names):
        for name in names:
            path = tmp_path / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f'#!/bin/sh\necho "{name} $1" >>{tmp_path}/calls\n')
            path.chmod(0o755)
        (tmp_path / "calls").touch()
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        return tmp_path / "calls"

    return install


def policy(**settings):
    return HostPolicy(Settings(provider="local", **settings), (), Daemon.of(1, None))


@pytest.mark.parametrize("names", [["docker"], ["podman"], ["podman", "docker"], []])
async def test_installed_engines_are_asked_although_the_user_selects_local(engines, names, capsys):
    calls = engines(*names)
    await policy(image="debian:12").remove_leftovers([])
    assert calls.read_text().splitlines() == [f"{name} ps" for name in names]
    assert "not removed" not in "".join(capsys.readouterr())


async def test_no_engine_is_asked_without_an_image(engines):
    calls = engines("podman", "docker")
    await policy().remove_leftovers([])
    assert calls.read_text() == ""
