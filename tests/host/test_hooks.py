"""The hooks of the user: commands for questions, waiting programs and ends."""

import base64
import json

import pytest

from acpterm.config import Settings
from acpterm.host.open_host import open_host
from acpterm.runtime.exec_context import current
from tests.support.agent import agent_of
from tests.support.polling import poll
from tests.support.user import user_of

BELL = base64.b64encode(b"\a").decode()
DANGEROUS = "rm -r '<b>no</b>-such'"


@pytest.fixture
def hook(tmp_path):
    """Return a hook's command that writes `$1` and stdin to the file `hooked`, and its reader."""
    file = tmp_path / "hooked"
    command = f'printf "%s\\n" "$1" > {file}.part; cat >> {file}.part; mv {file}.part {file}'

    async def read():
        text = await poll(lambda: file.exists() and file.read_text())
        file.unlink()
        sentence, _, info = text.partition("\n")
        return sentence, json.loads(info)

    return command, read


async def start(agent, command):
    return await agent.start("terminal/create", {"sessionId": agent.session, "command": command})


async def test_question_runs_its_hook_and_waits_for_the_user(hook):
    command, read = hook
    settings = Settings(profile="guarded", rules="/dev/null", on_question=command)
    async with (
        open_host(settings, current()) as host,
        agent_of(host) as agent,
        user_of(host) as user,
    ):
        id_ = await start(agent, DANGEROUS)
        sentence, info = await read()
        assert sentence.endswith(f"asks to run: {DANGEROUS}")
        assert (info["command"], info["level"]) == (DANGEROUS, "dangerous")
        assert (await user.request("status"))["questions"] == 1
        answer = {"approvalId": info["approvalId"], "decision": "allow"}
        await user.request("approval/answer", answer)
        await agent.wait((await agent.result(id_))["terminalId"])


@pytest.mark.parametrize("hook_of_user", [None, ""])
async def test_question_is_a_desktop_notification_and_rings_attached_windows(
    tmp_path, monkeypatch, hook_of_user
):
    shown, program = tmp_path / "shown", tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {shown}.part; mv {shown}.part {shown}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    settings = Settings(profile="guarded", rules="/dev/null", on_question=hook_of_user)
    async with (
        open_host(settings, current()) as host,
        agent_of(host) as agent,
        user_of(host) as user,
    ):
        created = await user.request("terminal/create", {"command": "cat"})
        size = {"cols": 80, "rows": 24}
        _, token = await user.open("terminal/attach", terminalId=created["terminalId"], **size)
        await user.until(lambda: user.by_token[token])
        await start(agent, DANGEROUS)
        if hook_of_user is None:
            await poll(shown.exists)
            assert (
                "rm -r &#x27;&lt;b&gt;no&lt;/b&gt;-such&#x27;\nacpterm approvals -f\n"
                in shown.read_text()
            )
            await user.until(lambda: user.by_token[token][-1]["params"]["data"] == BELL)
        else:
            await poll(lambda: host.guard.approvals.pending)
            assert not shown.exists()


async def test_programs_that_wait_and_end_run_their_hooks(hook):
    command, read = hook
    for setting, script, does in (
        ("on_waiting", "read x; exit", "bash waits for input"),
        ("on_end", "exit 3", "has ended"),
    ):
        settings = Settings(**{setting: command})
        async with open_host(settings, current()) as host, user_of(host) as user:
            request = {"command": script, "name": setting}
            created = await user.request("terminal/create", request)
            sentence, info = await read()
            assert sentence == f"{setting}: {does}"
            assert info["terminalId"] == created["terminalId"]
