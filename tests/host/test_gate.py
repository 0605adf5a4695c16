"""What happens to an agent's create request before a program starts: rules, limits, providers."""

import json
import os
import shutil

import pytest

from acpterm.config import Settings
from acpterm.config.profiles import Limits, ProfileFor, ProfileTable
from acpterm.host.open_host import ALONE, open_host
from acpterm.jsonrpc import RpcError
from acpterm.runtime.exec_context import current
from tests.support.agent import agent_of
from tests.support.polling import poll
from tests.support.sandboxes import place
from tests.support.user import user_of


@pytest.fixture
def rules(tmp_path):
    """Return a function that writes the file of rules, and returns settings that name the file."""
    path = tmp_path / "rules.toml"

    def write(text: str = "", **settings) -> Settings:
        path.write_text(text)
        return Settings(rules=str(path), **settings)

    return write


def created_meta(agent, **params):
    return agent.request("terminal/create", {"sessionId": "s", **params})


async def refused(agent, command, **params) -> str:
    with pytest.raises(RpcError) as error:
        await created_meta(agent, command=command, **params)
    return error.value.message


async def test_create_reports_provider_isolation_and_level(rules):
    async with open_host(rules(), current()) as host, agent_of(host) as agent:
        response = await created_meta(agent, command="echo hello")
        meta = response["_meta"]["acpterm"]
        assert meta == {"provider": "local", "isolation": "none", "level": "safe"}


async def test_dangerous_command_is_refused_with_advice_if_nobody_is_there_to_ask(rules, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    alone = open_host(rules(), current(), daemon_info=ALONE)
    async with alone as host, agent_of(host) as agent:
        message = await refused(agent, f"rm -r {victim}")
        assert "dangerous" in message
        assert "user cannot be asked" in message
        assert f"acpterm policy allow -- rm -r {victim}" in message
    assert victim.exists()


async def test_rule_that_denies_is_named_in_the_error(rules):
    text = '[[rule]]\npattern = ["git", "push"]\ndecision = "deny"\nreason = "not from here"\n'
    async with open_host(rules(text), current()) as host, agent_of(host) as agent:
        message = await refused(agent, "true && git push origin")
        assert "not from here" in message
        assert "git push" in message
        await created_meta(agent, command="true")


async def test_changed_file_of_rules_is_in_force_at_once(rules):
    async with open_host(rules(), current()) as host, agent_of(host) as agent:
        await created_meta(agent, command="true")
        rules('[[rule]]\npattern = ["true"]\ndecision = "deny"\nreason = "no"\n')
        assert "no" in await refused(agent, "true")


async def test_no_command_runs_while_the_file_of_rules_is_invalid(rules):
    settings = rules("[[rule]]\npattern = 3\n")
    async with (
        open_host(settings, current()) as host,
        agent_of(host) as agent,
        user_of(host) as user,
    ):
        assert "the user has to correct the file" in await refused(agent, "true")
        # The user's own terminals do not depend on the rules.
        await user.request("_acpterm/terminal/create", {"command": "true"})
        rules()
        await created_meta(agent, command="true")


async def test_pool_profile_refuses_in_the_words_of_a_pty_pool(rules):
    settings = rules(profile="pool")
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        for command in ("rm x", "sudo true", "echo `id`", "curl x | sh"):
            assert await refused(agent, command) == "Command blocked for security reasons"
        for _ in range(3):
            await created_meta(agent, command="true")
        assert await refused(agent, "true") == "Spawn rate limit exceeded (max 3/minute)"


async def test_number_of_terminals_is_limited(rules):
    profiles = {"few": ProfileTable(limits=Limits(agent_terminals=1))}
    settings = rules(profile="few", profiles=profiles)
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        first = await created_meta(agent, command="sleep 60")
        message = await refused(agent, "true")
        assert message.startswith("Maximum concurrent agent terminals reached (1)")
        assert "release one" in message
        await agent.request(
            "terminal/release", {"sessionId": "s", "terminalId": first["terminalId"]}
        )
        await poll(lambda: not [*host.terminals.registry.running])
        await created_meta(agent, command="true")


async def test_line_that_a_rule_allows_is_not_run_as_a_program_of_that_name(rules, tmp_path):
    planted = tmp_path / "bin" / "echo x"
    planted.parent.mkdir()
    (tmp_path / "bin" / "echo").symlink_to("/bin/echo")
    planted.write_text("#!/bin/sh\necho planted\n")
    planted.chmod(0o755)
    line = f"{tmp_path}/bin/echo x"
    text = f'[[rule]]\npattern = ["{tmp_path}/bin/echo"]\ndecision = "allow"\nreason = "test"\n'
    profiles = {"strict": ProfileTable(unknown="deny")}
    settings = rules(text, profile="strict", profiles=profiles)
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        terminal = await agent.create(line)
        await agent.wait(terminal)
        assert (await agent.output(terminal))["output"] == "x\n"


async def test_program_whose_path_has_spaces_runs_if_unknown_commands_may(rules, tmp_path):
    program = tmp_path / "my tool"
    program.write_text("#!/bin/sh\necho mine\n")
    program.chmod(0o755)
    async with open_host(rules(), current()) as host, agent_of(host) as agent:
        terminal = await agent.create(str(program))
        await agent.wait(terminal)
        assert (await agent.output(terminal))["output"] == "mine\n"


@pytest.mark.long
async def test_line_too_long_to_be_judged_is_refused(rules):
    async with open_host(rules(profile="pool"), current()) as host, agent_of(host) as agent:
        assert "blocked" in await refused(agent, "> " * 5_000_000)
    async with open_host(rules(profile="guarded"), current()) as host, agent_of(host) as agent:
        assert "too long to be judged" in await refused(agent, "> " * 5_000_000)


@pytest.mark.parametrize(
    ("profile", "shell", "level", "decision"),
    [
        ("guarded", "auto", "safe", "allow"),
        ("guarded", "/bin/sh", "dangerous", "ask"),
        ("confirm", "auto", "safe", "allow"),
        ("confirm", "/bin/sh", "dangerous", "ask"),
        ("pool", "auto", "safe", "allow"),
        ("pool", "/bin/sh", "dangerous", "deny"),
    ],
)
async def test_line_is_judged_as_its_shell_reads_it(rules, profile, shell, level, decision):
    if shell == "auto" and not shutil.which("bash"):
        pytest.skip("requires bash")
    settings = rules(profile=profile, shell=shell)
    line = "echo hi &>/dev/null rm -rf directory"
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        params = {"sessionId": agent.session, "command": line}
        found = await agent.request("_acpterm/command/check", params)
        assert (found["level"], found["decision"]) == (level, decision)
        for program in ("sh", "dash", "/bin/sh"):
            params = {"sessionId": agent.session, "command": program, "args": ["-c", line]}
            found = await agent.request("_acpterm/command/check", params)
            assert found["decision"] == ("deny" if profile == "pool" else "ask")


async def test_long_line_is_judged(rules):
    document = "cat >file <<'E'\n" + "rm -rf x\n" * 200_000 + "E\n"
    async with open_host(rules(), current()) as host, agent_of(host) as agent:
        for line, level in ((document, "unknown"), (f"{document}rm -rf x", "dangerous")):
            params = {"sessionId": agent.session, "command": line}
            found = await agent.request("_acpterm/command/check", params)
            assert found["level"] == level
            assert "too long" not in found["reason"]


async def test_refusals_are_in_the_audit_log(rules, tmp_path):
    settings = rules(audit_dir=str(tmp_path / "audit"), profile="pool")
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        await refused(agent, "rm x")
        for _ in range(3):
            await created_meta(agent, command="true")
        await refused(agent, "true")
        await refused(agent, "true", _meta={"acpterm": {"provider": "nonsense"}})
        await refused(agent, "true", cwd="/does/not/exist")
    log = (tmp_path / "audit" / "audit.jsonl").read_text().splitlines()
    entries = map(json.loads, log)
    reasons = [entry["reason"] for entry in entries if entry["event"] == "refused"]
    assert reasons[0] == "Command blocked for security reasons"
    assert reasons[1] == "Spawn rate limit exceeded (max 3/minute)"
    assert "nonsense" in reasons[2]
    assert len(reasons) == 4


@pytest.mark.parametrize("asked", ["local", "nonsense"])
async def test_agent_cannot_request_a_looser_provider(rules, asked):
    profiles = {"boxed": ProfileTable(provider="podman")}
    settings = rules(profile="boxed", profiles=profiles)
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        meta = {"acpterm": {"provider": asked}}
        message = await refused(agent, "true", _meta=meta)
        assert repr(asked) in message or f'"{asked}"' in message


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="requires bwrap")
@pytest.mark.long
async def test_agent_can_request_a_stricter_provider(rules):
    with place(repository=False) as found:
        context = current()._replace(cwd=str(found.workspace))
        async with open_host(rules(), context) as host, agent_of(host) as agent:
            meta = {"acpterm": {"provider": "bubblewrap"}}
            command = f"echo x > {found.outside}/new; echo x > inside"
            response = await created_meta(agent, command=command, _meta=meta)
            created = response["_meta"]["acpterm"]
            assert created["provider"] == "bubblewrap"
            assert created["isolation"] == "sandbox"
            agent.session = "s"
            await agent.wait(response["terminalId"])
            assert (found.workspace / "inside").exists()
            assert not (found.outside / "new").exists()


async def test_nothing_runs_if_the_provider_cannot_be_used(rules, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    settings = rules(provider="bubblewrap")
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        marker = tmp_path / "ran"
        message = await refused(agent, f"/bin/touch {marker}")
        assert "'bubblewrap' cannot be used" in message
        assert "install the package bubblewrap" in message
        assert not marker.exists()


async def test_profile_is_selected_by_the_directory_of_the_agent_and_not_of_the_request(
    rules, tmp_path
):
    profiles = [ProfileFor(profile="open", directory=str(tmp_path))]
    settings = rules(profile="pool", profile_for=profiles)
    elsewhere = current()._replace(cwd=os.sep)
    async with open_host(settings, elsewhere) as host, agent_of(host) as agent:
        message = await refused(agent, "rm x", cwd=str(tmp_path))
        assert message == "Command blocked for security reasons"
    here = current()._replace(cwd=str(tmp_path))
    async with open_host(settings, here) as host, agent_of(host) as agent:
        await created_meta(agent, command="rm x", cwd=os.sep)


async def test_audit_log_has_create_start_and_exit_of_a_command(rules, tmp_path):
    settings = rules(audit_dir=str(tmp_path / "audit"))
    alone = open_host(settings, current(), daemon_info=ALONE)
    async with alone as host, agent_of(host) as agent:
        terminal = await agent.create("echo --password=hunter2; exit 3")
        await agent.wait(terminal)
        await refused(agent, "rm -r x")
    log = (tmp_path / "audit" / "audit.jsonl").read_text()
    assert "hunter2" not in log
    entries = [json.loads(line) for line in log.splitlines()]
    events = [entry["event"] for entry in entries]
    assert events[:3] == ["create", "started", "exit"]
    assert entries[0]["level"] == "safe" or entries[0]["level"] == "unknown"
    assert entries[1]["terminal"] == terminal
    assert entries[2]["code"] == 3
    assert [entry["decision"] for entry in entries if entry["event"] == "decision"] == ["deny"]


async def test_audit_log_can_be_disabled(rules, tmp_path):
    settings = rules(audit=False, audit_dir=str(tmp_path / "audit"))
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        await agent.wait(await agent.create("true"))
    assert not (tmp_path / "audit").exists()
