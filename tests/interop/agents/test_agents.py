"""Real agents run commands in acpterm's terminals, through `acpterm proxy` and `acpterm prompt`.

For one behaviour, each test checks the responses that the agent received, the agent's last message
(the text that its model would receive), and the text that the user was shown.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.interop.agents.kinds import KINDS, KINDS_AT_ONCE, Kind
from tests.interop.agents.ways import WAYS, Turn, Wire, proxy
from tests.support.polling import poll

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

Begin = Callable[..., AbstractAsyncContextManager[Turn]]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=KINDS)
def agent(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


class Ran:
    """The results of one turn that ran a command."""

    def __init__(self, turn: Turn, reason: str) -> None:
        self.turn = turn
        self.reason = reason
        self.wire: Wire = turn.wire()
        self.message_text = self.wire.message_text()
        self.shown = turn.shown()


@pytest.fixture
def begin(tmp_path: Path, way: str, agent: Kind) -> Begin:
    """Return a function that starts a turn with a command."""

    @asynccontextmanager
    async def begin(line: str, command_timeout_s: int | None = None) -> AsyncIterator[Turn]:
        text = agent.prompt(line, command_timeout_s=command_timeout_s)
        async with WAYS[way](tmp_path, agent, text, command_timeout_s=command_timeout_s) as turn:
            yield turn

    return begin


@pytest.fixture
def run(begin: Begin):
    """Return a function that runs a turn with a command to its end."""

    async def run(line: str, command_timeout_s: int | None = None) -> Ran:
        async with begin(line, command_timeout_s) as turn:
            reason = await turn.end()
        return Ran(turn, reason)

    return run


async def test_pipeline_runs_in_a_shell_in_the_sessions_directory(run, agent, way):
    ran = await run('echo "x $((1+1))" | tr a-z A-Z && pwd')
    work = ran.turn.place.work
    terminal = ran.wire.terminal()
    assert terminal.status == (0, None)
    assert terminal.text == f"X 2\n{work}\n"
    assert terminal.order == ["create", "wait_for_exit", "output", "release"]
    assert ran.reason == "end_turn"
    assert agent.exit_report(0) in ran.message_text
    assert f"X 2\n{work}\n" in ran.message_text
    assert f"X 2\n{work}" in ran.shown
    if agent.embeds and way == "proxy":
        line = '$ echo "x $((1+1))" | tr a-z A-Z && pwd'
        assert f"```console\n{line}\nX 2\n{work}\n```" in ran.shown


async def test_arguments_with_spaces_arrive_unchanged(run, agent):
    ran = await run("""printf '[%s]\\n' 'a b' '' "c  d" """)
    terminal = ran.wire.terminal()
    if agent.name == "fast-agent":
        assert terminal.params["command"] == "printf"
        assert terminal.params["args"] == ["[%s]\\n", "a b", "", "c  d"]
    assert terminal.text == "[a b]\n[]\n[c  d]\n"
    assert "[a b]\n[]\n[c  d]\n" in ran.message_text
    assert "[a b]\n[]\n[c  d]" in ran.shown


async def test_exit_code_reaches_agent_and_user(run, agent):
    ran = await run("echo before; exit 3")
    terminal = ran.wire.terminal()
    assert terminal.status == (3, None)
    assert terminal.output["exitStatus"]["exitCode"] == 3
    assert terminal.text == "before\n"
    assert agent.exit_report(3) in ran.message_text
    assert "before" in ran.shown
    if agent.embeds:
        assert "before\n[exit status 3]" in ran.shown


async def test_signal_name_reaches_agent_and_user(run, agent):
    ran = await run("echo dying; kill -KILL $$")
    terminal = ran.wire.terminal()
    assert terminal.status == (None, "SIGKILL")
    assert terminal.text == "dying\n"
    assert agent.signal_report("SIGKILL") in ran.message_text
    assert "dying" in ran.shown
    if agent.embeds:
        assert "dying\n[ended by SIGKILL]" in ran.shown


async def test_missing_program_is_reported_by_name(run, agent):
    ran = await run("no-such-program-here --flag")
    terminal = ran.wire.terminal()
    assert terminal.status == (127, None)
    assert "not found" in terminal.text
    assert ran.reason == "end_turn"
    assert terminal.text in ran.message_text
    assert "no-such-program-here" in ran.shown


async def test_late_output_is_shown_completely(run, agent):
    ran = await run("echo early; sleep 0.1; echo late; sleep 0.05; echo last")
    assert ran.wire.terminal().text == "early\nlate\nlast\n"
    assert "early\nlate\nlast" in ran.shown


async def test_truncated_output_starts_at_a_character_boundary(run, agent):
    ran = await run("seq 1 20000 | sed 's/$/ grüße 🙂/'")
    everything = "".join(f"{n} grüße 🙂\n" for n in range(1, 20001))
    terminal = ran.wire.terminal()
    assert terminal.params["outputByteLimit"] == agent.limit
    assert terminal.output["truncated"] is True
    assert everything.endswith(terminal.text)
    assert agent.limit - 4 < len(terminal.text.encode()) <= agent.limit
    assert agent.truncated in ran.message_text
    # fast-agent truncates again, in the middle and regardless of characters.
    assert "\n19999 grüße 🙂\n20000 grüße 🙂\n" in ran.message_text
    assert "\n19999 grüße 🙂\n20000 grüße 🙂" in ran.shown
    if agent.embeds:
        assert "\ufffd" not in ran.message_text + ran.shown


async def test_agents_own_timeout_ends_the_program_and_keeps_its_output(run, agent, way):
    ran = await run("echo begun; sleep 7531; echo never", command_timeout_s=2)
    terminal = ran.wire.terminal()
    assert [name for name in terminal.order if name != "wait_for_exit"] == [
        "create",
        "kill",
        "output",
        "release",
    ]
    assert terminal.killed == terminal.released == {}
    assert terminal.text == "begun\n"
    assert terminal.output["exitStatus"]["signal"] == "SIGTERM"
    assert agent.timeout_report(2) in ran.message_text
    assert "begun" in ran.message_text
    if agent.embeds:
        assert "begun\n[ended by SIGTERM]" in ran.shown


async def test_cancelled_turn_leaves_no_process(begin, agent):
    # A child in another POSIX session escapes signals to the process group.
    line = "setsid sleep 7532 & echo begun; sleep 7532"
    async with begin(line) as turn:
        await poll(lambda: turn.place.running("sleep 7532") == 2, 60)
        await turn.cancel()
        assert await turn.end() == "cancelled"
        await poll(lambda: not turn.place.running("sleep 7532"), 5)
        assert turn.wire().params_of("terminal/create")
    sent = [m for m in turn.wire().to_agent if m.get("method") == "session/cancel"]
    assert len(sent) == 1
    if agent.name == "fast-agent":
        # fast-agent leaks its terminal.
        assert not turn.wire().params_of("terminal/release")
        assert not turn.wire().params_of("terminal/kill")


async def test_two_concurrent_terminals_are_separate(tmp_path, agent, way):
    """Run two shell calls in one turn, neither of which can end before the other has started.

    fast-agent uses the scripted model here, since its `passthrough` makes one call at a time. The
    terminals are a daemon's.
    """
    kind = KINDS_AT_ONCE[agent.name]
    wait = "until [ -e {} ]; do sleep 0.02; done; echo {} is over"
    lines = [f"touch one; {wait.format('two', 'one')}", f"touch two; {wait.format('one', 'two')}"]
    flags = ("--socket", str(tmp_path / "run" / "agent.sock"))
    async with WAYS[way](tmp_path, kind, kind.prompt_all(lines), flags=flags) as turn:
        reason = await turn.end()
    ran = Ran(turn, reason)
    one, two = ran.wire.terminals()
    assert one.id != two.id
    assert {one.text, two.text} == {"one is over\n", "two is over\n"}
    assert one.status == two.status == (0, None)
    for name in ("one", "two"):
        assert f"{name} is over" in ran.message_text
        assert f"{name} is over" in ran.shown


async def test_two_concurrent_sessions_are_separate(tmp_path, agent):
    async with proxy(tmp_path, agent) as (client, place, wire), trio.open_nursery() as nursery:
        with trio.fail_after(90):
            first = await client.start(str(place.work))
            other = place.directory / "other"
            other.mkdir()
            second = await client.open(str(other))
            line = "touch ../{0}; until [ -e ../{1} ]; do sleep 0.02; done; pwd"
            nursery.start_soon(client.prompt, first, agent.prompt(line.format("one", "two")))
            await client.prompt(second, agent.prompt(line.format("two", "one")))
            await poll(lambda: str(place.work) in client.message_text.get(first, ""), 30)
            assert str(other) in client.message_text[second]
    assert {t.text for t in wire().terminals()} == {f"{place.work}\n", f"{other}\n"}


async def test_editor_that_shows_terminals_gets_output_and_exit(tmp_path, agent):
    """Terminals are only shown if the agent embeds them in tool calls."""
    line = "printf '\\033[31mred\\033[0m\\n'; exit 4"
    async with WAYS["proxy"](tmp_path, agent, agent.prompt(line), shows=True) as turn:
        await turn.end()
    terminals = turn.client.terminals
    assert agent.exit_report(4) in turn.wire().message_text()
    if agent.embeds:
        (shown,) = terminals.values()
        assert shown["cwd"] == str(turn.place.work)
        assert shown["data"] == "\x1b[31mred\x1b[0m\r\n"
        assert shown["exit"] == (4, None)
    else:
        assert not terminals
        assert "red" in turn.shown()
