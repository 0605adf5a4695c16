"""Arguments and environments beyond execve's limits are refused; a longer line runs from a file."""

import os
import re
import resource
import shutil
import time

import pytest
import trio

from acpterm.config.places import SshPlace
from acpterm.config.profiles import Limits, ProfileTable
from acpterm.host.launch import validation
from acpterm.jsonrpc import INVALID_PARAMS, Peer, RpcError
from acpterm.providers import landlock_exec
from acpterm.pty import linux
from tests.support import sandboxes
from tests.support.hosts import agent_here

STACK = 8 * 1024 * 1024
RLIMITS = ((resource.RLIMIT_STACK, STACK, resource.RLIM_INFINITY),)
MOST = validation.STRING_BYTES_MAX
on_linux = pytest.mark.skipif(not linux.AVAILABLE, reason="only Linux limits one string")
# Made by the test that needs it: each takes much memory.
LARGE = {
    "argument": lambda: {"command": "echo", "args": ["x" * 30_000_000]},
    "arguments": lambda: {"command": "echo", "args": ["xxxxxxxx"] * 2_000_000},
    "variable": lambda: {"command": "env", "env": [{"name": "A", "value": "x" * 30_000_000}]},
    "variables": lambda: {
        "command": "env",
        "env": [{"name": f"A{number}", "value": "x"} for number in range(700_000)],
    },
}


def check_size(words, env, rlimits):
    validation.check_size(words[0], words[1:], env, rlimits)


def refused(words, env=None, rlimits=RLIMITS):
    with pytest.raises(RpcError) as caught:
        check_size(words, env or {}, rlimits)
    assert caught.value.code == INVALID_PARAMS
    return caught.value.message


@on_linux
@pytest.mark.parametrize("letter", ["x", "é", "🙂"])
def test_string_limit_is_exactly_the_kernels(letter):
    size = len(letter.encode())
    most = letter * (MOST // size) + "x" * (MOST % size)
    check_size(["echo", most], {}, RLIMITS)
    check_size(["echo"], {"A": most[: -2 * size]}, RLIMITS)
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
    check_size([*words, last], {}, ())
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
    if not linux.AVAILABLE and what in ("argument", "variable"):
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


LONG = 131_072
"""The first size of a line, in bytes, that is too large for an argument on Linux."""
TEXT = "it's \\ $HOME `x` \x01\x7f\té→🙂\n"
# A here-document with a file in it, what the line sees of the way in which it is run, and an error.
REST = (
    "E\n"
    'read x; echo "$0 $# $? $- <$x> $LINENO"; ls /proc/self/fd | wc -l; (exit 3)\n'
    "no-such-program\n"
    'printf %s "$BASH_EXECUTION_STRING" | wc -c; echo last \\\n'
)
DOCUMENT = "cat >copy <<'E'\n"


def leftovers(directory):
    return [path.name for path in directory.iterdir() if path.name.startswith("acpterm-line-")]


@pytest.fixture
def private(tmp_path, monkeypatch):
    """Return the user's runtime directory."""
    (path := tmp_path / "runtime").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(path))
    return path


async def typed(agent, line, **more):
    """Run a line that reads a line; return the output after the echo, and the exit code."""
    terminal = await agent.create(line, **more)
    await agent.type(terminal, "typed\n")
    status = await agent.wait(terminal)
    return (await agent.output(terminal))["output"], status["exitCode"]


@pytest.mark.costly
@pytest.mark.skipif(not shutil.which("bash"), reason="requires bash")
@pytest.mark.parametrize("size", [LONG - 1, LONG, 200_000, 2_000_000])
async def test_long_line_behaves_like_a_short_one(size, tmp_path, private):
    async with agent_here() as agent:
        short, code = await typed(agent, f"{DOCUMENT}{TEXT}{REST}", cwd=str(tmp_path))
        count = size - len((DOCUMENT + REST).encode())
        text = TEXT * (count // len(TEXT.encode()))
        text += "x" * (count - len(text.encode()) - 1) + "\n"
        line = f"{DOCUMENT}{text}{REST}"
        assert len(line.encode()) == size
        output, long_code = await typed(agent, line, cwd=str(tmp_path))
    assert (tmp_path / "copy").read_text() == text
    assert "/bin/bash 0 0 hBc <typed>" in output
    # The line's own length and line numbers differ.
    assert re.sub(r"\d{2,}|line \d+|> \d+", "N", output) == re.sub(
        r"\d{2,}|line \d+|> \d+", "N", short
    )
    assert f"line {text.count(chr(10)) + 4}: no-such-program: command not found" in output
    assert f"\n{size}\nlast\n" in output
    assert code == long_code == 0
    assert leftovers(private) == []


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/dash", "/bin/bash", "/bin/zsh"])
async def test_long_line_runs_in_every_shell(shell, private):
    if not os.access(shell, os.X_OK):
        pytest.skip(f"requires {shell}")
    rest = '\nread x; echo "<$x> $# $0"; ls /proc/self/fd; no-such-program'
    async with agent_here(shell=shell) as agent:
        few, _ = await typed(agent, "ls /proc/self/fd; read x")
        output, code = await typed(agent, f"# {'x' * LONG}{rest}")
        assert f"<typed> 0 {shell}\n{few.partition('typed')[0]}" in output
        assert "no-such-program" in output
        assert code == 127
        assert (await agent.run(f"-x {'y' * LONG}"))[1]["exitCode"] == 127
    assert leftovers(private) == []


async def test_file_of_a_long_line_is_removed_if_the_start_fails(private):
    # Without control groups, the limit cannot be enforced.
    profiles = {"limited": ProfileTable(limits=Limits(memory=2**30))}
    async with agent_here(profile="limited", profiles=profiles, tracking="subreaper") as agent:
        with pytest.raises(RpcError, match="no terminal is created"):
            await agent.create("#" * LONG)
    assert leftovers(private) == []


async def test_file_of_a_killed_program_is_removed_by_a_later_one(private):
    old = private / "acpterm-line-old"
    old.touch()
    os.utime(old, (0, 0))
    async with agent_here() as agent:
        await agent.run("#" * LONG)
    assert leftovers(private) == []


@pytest.mark.parametrize("provider", ["landlock", "bubblewrap"])
async def test_long_line_runs_in_a_sandbox(provider, private, monkeypatch):
    if provider == "bubblewrap" and not shutil.which("bwrap"):
        pytest.skip("requires bwrap")
    if provider == "landlock" and landlock_exec.abi() < landlock_exec.ABI_MIN:
        pytest.skip("requires Linux 6.12 with Landlock")
    with sandboxes.place() as place:
        monkeypatch.chdir(place.workspace)
        async with agent_here(profile="open", provider=provider) as agent:
            few, _ = await typed(agent, "ls /proc/self/fd; read x")
            line = f'# {"x" * LONG}\nread x; echo "<$x>"; ls /proc/self/fd'
            output, _ = await typed(agent, line)
    assert output.replace("typed\n", "", 1) == "<typed>\n" + few.replace("typed\n", "", 1)
    assert leftovers(private) == []


@pytest.mark.parametrize("provider", ["podman", "ssh:build1"])
async def test_long_line_is_refused_where_no_file_can_be_passed(provider, private):
    places = {"build1": SshPlace()}
    async with agent_here(profile="open", provider=provider, image="x", ssh=places) as agent:
        with pytest.raises(RpcError, match="can pass a line only as an argument") as caught:
            await agent.create("#" * LONG)
    assert caught.value.code == INVALID_PARAMS
    assert leftovers(private) == []


async def test_environment_too_large_for_a_long_line_is_refused():
    env = [{"name": f"A{number}", "value": "x" * 100_000} for number in range(100)]
    async with agent_here() as agent:
        with pytest.raises(RpcError, match="ARG_MAX"):
            await agent.create("#" * LONG, env=env)


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
