"""Arguments and environments beyond execve's limits are refused; what just fits is run."""

import os
import resource
import time

import pytest
import trio

from acpterm.host.launch import validation
from acpterm.jsonrpc import INVALID_PARAMS, Peer, RpcError
from acpterm.pty import linux
from tests.support.hosts import agent_here

STACK = 8 * 1024 * 1024
RLIMITS = ((resource.RLIMIT_STACK, STACK, resource.RLIM_INFINITY),)
MOST = validation.STRING_BYTES_MAX
on_linux = pytest.mark.skipif(not linux.AVAILABLE, reason="only Linux limits one string")
# Made by the test that needs it: each takes much memory.
LARGE = {
    "command": lambda: {"command": "x" * 30_000_000},
    "lines": lambda: {"command": "x\n" * 15_000_000},
    "argument": lambda: {"command": "echo", "args": ["x" * 30_000_000]},
    "arguments": lambda: {"command": "echo", "args": ["xxxxxxxx"] * 2_000_000},
    "variable": lambda: {"command": "env", "env": [{"name": "A", "value": "x" * 30_000_000}]},
    "variables": lambda: {
        "command": "env",
        "env": [{"name": f"A{number}", "value": "x"} for number in range(700_000)],
    },
}


def refused(words, env=None, rlimits=RLIMITS):
    with pytest.raises(RpcError) as caught:
        validation.check_size(words, env or {}, rlimits)
    assert caught.value.code == INVALID_PARAMS
    return caught.value.message


@on_linux
@pytest.mark.parametrize("letter", ["x", "é", "🙂"])
def test_string_limit_is_exactly_the_kernels(letter):
    size = len(letter.encode())
    most = letter * (MOST // size) + "x" * (MOST % size)
    validation.check_size(["echo", most], {}, RLIMITS)
    validation.check_size(["echo"], {"A": most[: -2 * size]}, RLIMITS)
    assert f"at most {MOST} here (MAX_ARG_STRLEN)" in refused(["echo", most + "x"])
    assert "MAX_ARG_STRLEN" in refused(["echo"], {"A": most})


@on_linux
async def test_total_limit_is_never_below_or_above_the_kernels():
    count = 200
    program = "/bin/true"
    total = validation.total_bytes_max(())
    rest = total - 9 * (count + 2) - 2 * len(program)
    size, more = divmod(rest, count)
    words = [program, *["x" * size] * (count - 1)]
    last = "x" * (size + more)
    validation.check_size([*words, last], {}, ())
    # Slightly less: the kernel aligns the stack.
    done = await trio.run_process([*words, last[:-4096]], env={}, check=False)
    assert done.returncode == 0
    refused([*words, last + "x"], rlimits=())
    with pytest.raises(OSError, match="too long"):
        await trio.run_process([*words, last + "x" * 9000], env={}, check=False)


@on_linux
def test_total_limit_follows_the_programs_stack_limit():
    def limit(stack):
        return validation.total_bytes_max(((resource.RLIMIT_STACK, stack, stack),))

    assert limit(STACK) == STACK // 4
    assert limit(64 * 1024) == 128 * 1024
    assert limit(resource.RLIM_INFINITY) == limit(2**40) == 6 * 1024 * 1024


@pytest.mark.costly
@pytest.mark.parametrize("what", LARGE)
@pytest.mark.long
async def test_far_too_large_request_is_refused_at_once(what):
    if not linux.AVAILABLE and what in ("command", "lines", "argument", "variable"):
        pytest.skip("only Linux limits one string")
    async with agent_here() as agent:
        before = time.process_time()
        with pytest.raises(RpcError, match="ARG_") as caught:
            await agent.create(**LARGE[what]())
        # This includes the agent, which encodes and parses 30 MB of JSON.
        assert time.process_time() - before < 5
        assert caught.value.code == INVALID_PARAMS
        assert len(caught.value.message) < 1000
        assert (await agent.run("echo here"))[0] == "here\n"


@on_linux
async def test_shell_line_of_the_largest_size_is_run():
    async with agent_here() as agent:
        line = "echo here; #"
        output, _ = await agent.run(line + "x" * (MOST - len(line)))
        assert output == "here\n"
        with pytest.raises(RpcError, match="MAX_ARG_STRLEN"):
            await agent.create(line + "x" * (MOST - len(line) + 1))


@pytest.mark.long
def test_message_in_pieces_is_read_in_linear_time():
    def cost(size):
        line = b'{"jsonrpc":"2.0","method":"x","params":{"a":"%s"}}\n' % (b"x" * size)
        best = float("inf")
        for _ in range(3):
            peer = Peer()
            before = time.process_time()
            events = [
                event
                for at in range(0, len(line), 65536)
                for event in peer.receive_data(line[at : at + 65536])
            ]
            best = min(best, time.process_time() - before)
            assert len(events) == 1
        return best

    # Linear time is 8 times as long, quadratic 64 times; the shorter is some milliseconds.
    assert cost(32 * 1024 * 1024) < 24 * max(cost(4 * 1024 * 1024), 0.01)


def test_limits_are_those_of_this_kernel():
    if linux.AVAILABLE:
        assert os.sysconf("SC_PAGE_SIZE") * 32 == MOST + 1
