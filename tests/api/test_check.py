"""Judgement on commands through the Python API."""

from contextlib import suppress

import anyio
import pytest

import acpterm
from acpterm.config import Settings
from acpterm.config.profiles import ProfileFor
from tests.api.test_client import connect
from tests.support.backends import on_both_backends
from tests.support.depth import DEADLINE_S


@pytest.mark.long
@pytest.mark.parametrize("role", ["agent", "user"])
@on_both_backends
async def test_check_judges_without_running(settings, role, tmp_path):
    async with connect(settings, role, cwd=str(tmp_path)) as client:
        safe = await client.check("ls -la")
        assert (safe.level, safe.decision, safe.profile) == ("safe", "allow", "guarded")
        assert [part.words for part in safe.parts] == [["ls", "-la"]]
        dangerous = await client.check("touch made && rm", ["-rf", "/"])
        assert dangerous.level in ("unknown", "dangerous")
        dangerous = await client.check("touch made; rm -rf made")
        assert (dangerous.level, dangerous.decision) == ("dangerous", "ask")
        assert dangerous.parts[1].reason
        assert not (tmp_path / "made").exists()
        assert not [info for info in await client.terminals() if "made" in info.command]


@on_both_backends
async def test_check_that_asks_is_refused_by_a_profile_that_denies(settings):
    async with connect(settings, "agent", profile="pool") as client:
        assert (await client.check("ls", ask=True)).decision == "allow"
        with pytest.raises(acpterm.CommandRefused, match="blocked"):
            await client.check("kill 1", ask=True)


@on_both_backends
async def test_profile_of_an_agent_makes_its_policy_stricter(settings):
    async with connect(settings, "agent", profile="pool") as client:
        assert (await client.check("kill 1")).decision == "deny"
        with pytest.raises(acpterm.CommandRefused, match=r"\ACommand blocked for security reasons"):
            await client.create("kill 1")


@on_both_backends
async def test_unknown_profile_is_an_error_that_lists_the_known_ones(settings):
    for role, error in (("user", acpterm.AcptermError), ("agent", acpterm.DaemonError)):
        with pytest.raises(error, match=r"no profile 'none'.*guarded"):
            async with connect(settings, role, profile="none"):
                pass
    # Until the daemon has noticed that the agent has gone, it takes this process for an agent's.
    with anyio.fail_after(DEADLINE_S):
        while True:
            with suppress(acpterm.DaemonError):
                async with connect(settings, "user"):
                    return


@pytest.mark.costly
@on_both_backends
async def test_check_of_the_user_applies_rules_and_profiles(daemon, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rule]]\npattern = ["make", "deploy"]\ndecision = "deny"\nreason = "not me"\n'
    )
    settings = Settings(
        socket=daemon.socket,
        rules=str(rules),
        profile_for=[ProfileFor(profile="open", directory=str(tmp_path))],
    )
    async with acpterm.connect(settings=settings) as client:
        denied = await client.check("make deploy")
        assert (denied.decision, denied.reason) == ("deny", "not me")
        assert (await client.check("sudo ls", cwd=str(tmp_path))).decision == "allow"
    async with acpterm.connect(settings=settings, profile="pool") as client:
        assert (await client.check("kill 1")).decision == "deny"
        rules.write_text("[[rule]]\n")
        with pytest.raises(acpterm.AcptermError, match=r"rules\.toml"):
            await client.check("ls")
