"""What is left of a create whose turn is cancelled while its program starts."""

import json

import pytest
import trio

from acpterm.config import Settings
from acpterm.config.profiles import Limits, ProfileTable
from acpterm.host.open_host import open_host
from acpterm.jsonrpc import RpcError
from acpterm.providers.local import LocalProvider
from acpterm.runtime.exec_context import current
from tests.support.agent import agent_of
from tests.support.polling import poll


class Slow(LocalProvider):
    """Cancels the turn of a create while the program is prepared, and records the clean-ups."""

    def __init__(self):
        self.cancel = None
        self.tokens = []

    async def prepare(self, command):
        await self.cancel()
        return (await super().prepare(command))._replace(token="left")

    async def clean_up(self, token):
        await trio.lowlevel.checkpoint()
        self.tokens.append(token)


async def test_start_of_a_cancelled_turn_counts_is_recorded_and_is_cleaned_up(tmp_path):
    profiles = {"few": ProfileTable(limits=Limits(starts_per_minute=1))}
    settings = Settings(profile="few", profiles=profiles, audit_dir=str(tmp_path / "audit"))
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        provider = host.guard.policy._providers["local"] = Slow()

        async def cancel():
            (connection,) = host.resumption.connections
            before = connection.sessions[agent.session].cancelled
            await agent.notify("session/cancel", {"sessionId": agent.session})
            await poll(lambda: connection.sessions[agent.session].cancelled > before)

        provider.cancel = cancel
        with pytest.raises(RpcError, match="cancelled with the turn"):
            await agent.create("exec sleep 60")
        await poll(lambda: provider.tokens == ["left"])
        assert not [*host.terminals.registry.running]
        with pytest.raises(RpcError, match="Spawn rate limit exceeded"):
            await agent.create("true")
        assert not len(host.terminals.registry)
    log = (tmp_path / "audit" / "audit.jsonl").read_text()
    entries = [json.loads(line) for line in log.splitlines()]
    events = [entry["event"] for entry in entries if entry.get("terminal")]
    assert events[:2] == ["started", "release"]
