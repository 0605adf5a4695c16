"""Restarts of a user's terminals whose programs run on another host."""

import pytest

from acpterm.config.places import SlurmPlace, SlurmResources
from acpterm.providers.provider import Prepared
from tests.support.hosts import host_here
from tests.support.user import user_of

THERE = "/a/directory/of/the/other/host"


@pytest.fixture
def commands(monkeypatch):
    """Let programs of places run on this machine; return the list of the requested commands."""
    found = []

    class Place:
        name, isolation = "slurm:cpu", "none"

        async def prepare(self, command):
            found.append(command)
            return Prepared(["sleep", "60"], None, command.env, "/", None, "node1")

    monkeypatch.setattr("acpterm.host.policy.make", lambda *_, **__: Place())
    return found


async def test_restarted_program_has_its_directory_and_resources(commands):
    place = {"cpu": SlurmPlace()}
    async with host_here(slurm=place, kill_grace=0.1) as host, user_of(host) as user:
        asked = {"cpus": 3, "time": "10"}
        params = {"command": "true", "cwd": THERE, "provider": "slurm:cpu", "resources": asked}
        old = await user.request("terminal/create", params)
        new = await user.terminal_request("restart", old["terminalId"])
        assert new["terminalId"] != old["terminalId"]
    assert [command.cwd for command in commands] == [THERE, THERE]
    assert [command.resources for command in commands] == [SlurmResources(**asked)] * 2
