"""What a provider removes after a terminal, and what happens if it cannot."""

import os
import signal

import pytest
import trio
import trio.testing

from acpterm.providers.local import LocalProvider
from tests.support.agent import agent_of
from tests.support.hosts import host_here
from tests.support.polling import poll
from tests.support.user import user_of


class Leaving(LocalProvider):
    """Runs programs as `local` does, and leaves something that `clean_up` has to remove."""

    def __init__(self, error=None, delay_s=0.0):
        self.error = error
        self.delay_s = delay_s
        self.token = "left"
        self.tokens = []

    async def prepare(self, command):
        return (await super().prepare(command))._replace(token=self.token)

    async def clean_up(self, token):
        self.tokens.append(token)
        await trio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error


def place(host, provider):
    host.guard.policy._providers["local"] = provider
    return provider


@pytest.mark.costly
@pytest.mark.parametrize(
    "error", [OSError(36, "File name too long"), RecursionError(), RuntimeError("no new thread")]
)
async def test_host_continues_and_keeps_the_token_when_a_clean_up_fails(host, agent, error):
    failing = place(host, Leaving(error))
    first = await agent.create("true")
    (entry,) = host.terminals.registry
    await agent.release(first)
    await poll(lambda: failing.tokens == ["left"])
    await trio.testing.wait_all_tasks_blocked()
    assert entry.record.clean_up_token == "left"
    place(host, Leaving())
    second = await agent.create("true")
    (entry,) = host.terminals.registry
    await agent.release(second)
    await poll(lambda: entry.record.clean_up_token is None)


async def test_clean_up_follows_the_end_of_all_processes_before_the_release(host, user):
    leaving = place(host, Leaving())
    background = await user.create("sleep 1000 & echo $!")
    await user.terminal_request("wait", background)
    pid = int((await user.terminal_request("output", background))["text"])
    leaving.token = "other"
    await user.create("true")
    await poll(lambda: leaving.tokens)
    assert leaving.tokens == ["other"]
    os.kill(pid, signal.SIGKILL)
    await poll(lambda: leaving.tokens == ["other", "left"])


async def test_failed_background_task_does_not_end_the_host():
    async def fail():
        await trio.lowlevel.checkpoint()
        raise OSError("failed")

    async with host_here() as host, agent_of(host) as agent:
        host.terminals.start_task(fail)
        await trio.testing.wait_all_tasks_blocked()
        assert (await agent.run("echo x"))[0] == "x\n"


@pytest.mark.long
async def test_error_of_a_launch_is_reported_when_its_clean_up_fails(host, agent, tmp_path):
    failing = place(host, Leaving(OSError("failed")))
    host.terminals.pool.lose_keeper()
    with pytest.raises(Exception, match="shutting down"):
        await agent.create("true")
    assert failing.tokens == ["left"]


@pytest.mark.long
async def test_closing_a_host_ends_clean_ups_at_one_deadline(monkeypatch):
    monkeypatch.setattr("acpterm.host.terminals.CLEAN_UP_TIMEOUT_S", 60.0)
    async with host_here() as host:
        slow = place(host, Leaving(delay_s=60.0))
        async with agent_of(host) as agent, user_of(host) as user:
            await agent.release(await agent.create("true"))
            await poll(lambda: slow.tokens == ["left"])
            await user.request("_acpterm/terminal/create", {"command": "exec sleep 60"})
        host._ending = True
        begun = trio.current_time()
        host.terminals.close_by(begun + 0.3)
    assert slow.tokens == ["left", "left"]
    assert trio.current_time() - begun < 20
