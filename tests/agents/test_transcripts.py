"""Replays recorded conversations of real agents and their client with the proxy in between.

The test acts as the editor and the agent; the terminals are real ones of a host in this process.
The host answers the `terminal/*` requests that the recorded client answered, and its responses are
validated against the schema. Messages that the proxy does not translate must arrive unchanged.
"""

import json
from pathlib import Path

import pytest
import trio
import trio.testing

from acpterm.acp.approvals import ApproverRequest
from acpterm.agents.agent_run import Hosted
from acpterm.agents.envelope import parse_envelope
from acpterm.agents.host_connection import open_host_connection
from acpterm.agents.proxy import capabilities
from acpterm.agents.proxy.relay import LineReader, Relay
from acpterm.agents.questions import PendingQuestions
from acpterm.agents.terminals import EXTENSIONS_META
from acpterm.agents.wirelog import WireLog
from acpterm.config import Settings
from acpterm.runtime.exec_context import current
from acpterm.runtime.send_queue import SendQueue
from tests.acp.validate import validate_sent
from tests.support.depth import DEADLINE_S
from tests.support.readers import FINAL, TEXT_READERS, Acpx, Marimo, Reader, Zed

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.jsonl"))
# Timeouts for messages that must come, and for responses that only the recording may have.
MESSAGE_TIMEOUT_S = DEADLINE_S
OPTIONAL_TIMEOUT_S = 1.0


def conversations():
    for file in FILES:
        entries = []
        for line in file.read_text().splitlines():
            entry = json.loads(line)
            if entry["msg"].get("method") == "initialize" and entries:
                yield file.stem, entries
                entries = []
            entries.append(entry)
        yield file.stem, entries


def name_of(entries):
    for entry in entries:
        if entry["msg"].get("method") == "session/prompt":
            return entry["msg"]["params"]["prompt"][0]["text"].split()[1]
    return "nothing"


ALL = list(conversations())
IDS = [f"{number}-{stem}-{name_of(entries)}" for number, (stem, entries) in enumerate(ALL)]


class Side:
    """The editor or the agent: sends lines and records what it receives."""

    def __init__(self, stream):
        self.stream = stream
        self.received = []
        self.all = []
        self._arrived = trio.Event()

    async def listen(self):
        rest = b""
        async for data in self.stream:
            *lines, rest = (rest + data).split(b"\n")
            messages = [json.loads(line) for line in lines]
            self.received += messages
            self.all += messages
            self._arrived.set()

    async def say(self, message):
        await self.stream.send_all(json.dumps(message).encode() + b"\n")

    async def receive(self, wanted, seconds=MESSAGE_TIMEOUT_S, *, ordered=True):
        """Wait for a message for which `wanted` is true; return it, and the messages before it.

        The message is removed from `received`; if `ordered`, those before it as well. Return None
        if it does not arrive within `seconds`.
        """
        with trio.move_on_after(seconds):
            while True:
                for place, message in enumerate(self.received):
                    if wanted(message):
                        before, self.received = self.received[:place], self.received[place + 1 :]
                        self.received = self.received if ordered else before + self.received
                        return message, before
                self._arrived = trio.Event()
                await self._arrived.wait()
        return None


class Play:
    """The replay of one conversation."""

    def __init__(self, entries, directory, editor, agent):
        self.entries = entries
        self.editor = editor
        self.agent = agent
        self.directory = directory
        self.terminals = {}
        self.methods = {}
        self.shows = False
        self.passed = self.translated = self.answered = 0

    def now(self, message):
        """Return a recorded message with this replay's directory and ids of terminals."""
        text = json.dumps(message).replace("$WORK", str(self.directory))
        for recorded, ours in self.terminals.items():
            text = text.replace(json.dumps(recorded), json.dumps(ours))
        return json.loads(text)

    async def play(self):
        for entry in self.entries:
            message = self.now(entry["msg"])
            if entry["dir"] == "client->agent":
                await self.of_editor(message, entry["msg"])
            else:
                await self.of_agent(message)

    async def of_editor(self, message, recorded):
        method = self.methods.get(message.get("id"), "")
        if "method" not in message and method.startswith("terminal/"):
            await self.of_host(message, recorded, method)
            return
        await self.editor.say(message)
        if message.get("method") == "initialize":
            announced = message["params"].setdefault("clientCapabilities", {})
            self.shows = bool(announced.get("_meta", {}).get("terminal_output"))
            announced["terminal"] = True
            announced.setdefault("_meta", {}).update({**EXTENSIONS_META, "terminal_output": True})
        passed = await self.agent.receive(lambda received: received == message, ordered=False)
        assert passed, f"did not pass: {message}"
        self.passed += 1

    async def of_host(self, message, recorded, method):
        """Receive, as the agent, the host's response in place of the recorded client's `message`.

        `recorded` is the same response with the recorded ids; `method` is the method of the
        request. A response to `terminal/wait_for_exit` may be missing.
        """
        seconds = OPTIONAL_TIMEOUT_S if method == "terminal/wait_for_exit" else MESSAGE_TIMEOUT_S
        found = await self.agent.receive(
            lambda received: "method" not in received and received["id"] == message["id"],
            seconds,
            ordered=False,
        )
        if found is None:
            assert method == "terminal/wait_for_exit", f"no answer to {method}"
            return
        validate_sent(found[0], self.methods)
        self.answered += 1
        if method == "terminal/create" and "result" in recorded:
            self.terminals[recorded["result"]["terminalId"]] = found[0]["result"]["terminalId"]

    async def of_agent(self, message):
        await self.agent.say(message)
        if "method" in message and "id" in message:
            self.methods[message["id"]] = message["method"]
            if message["method"].startswith("terminal/"):
                return
        ends = message.get("params", {}).get("update", {}).get("status") in FINAL
        translated = not self.shows and '"type": "terminal"' in json.dumps(message)
        if not self.shows:
            message = without_terminals(message)

        def wanted(received):
            if received == message:
                return True
            # The end of a call is given the call's content.
            return (
                (translated or ends)
                and received.get("method") == message["method"]
                and without(received) == without(message)
            )

        found = await self.editor.receive(wanted)
        assert found, f"did not come: {message}"
        received, before = found
        self.passed += not translated
        self.translated += translated
        # Other messages are the proxy's own updates of a terminal's display.
        for more in [*before, *([received] if translated else [])]:
            assert more["method"] == "session/update", more
            assert '"type": "terminal"' not in json.dumps(more)
            validate_sent(more, {})


def without_terminals(message):
    """Return a message as an editor that shows no terminals gets it: without those in `_meta`."""
    message = json.loads(json.dumps(message))
    update = message.get("params", {}).get("update", {})
    if meta := update.pop("_meta", None):
        rest = {name: value for name, value in meta.items() if not name.startswith("terminal_")}
        update |= {"_meta": rest} if rest else {}
    return message


def without(message):
    """Return a message without the content of its tool call, which the proxy translates."""
    message = json.loads(json.dumps(message))
    message["params"].get("update", message["params"].get("toolCall", {})).pop("content", None)
    return message


async def replay(entries, tmp_path):
    """Replay a conversation with the proxy between its sides."""
    (tmp_path / "sub").mkdir()
    settings = Settings(kill_grace=0.1)
    editor_end, proxy_editor = trio.testing.memory_stream_pair()
    agent_end, proxy_agent = trio.testing.memory_stream_pair()
    editor, agent = Side(editor_end), Side(agent_end)
    parsed = capabilities.editor_capabilities(
        parse_envelope(json.dumps(entries[0]["msg"]).encode()).params
    )
    context = current()
    async with (
        open_host_connection(None, settings, context, "an agent") as connection,
        trio.open_nursery() as nursery,
    ):
        queues = SendQueue(proxy_editor), SendQueue(proxy_agent)
        proxy = Relay(
            *queues,
            editor_capabilities=parsed,
            settings=settings,
            log=WireLog(None),
            hosted=Hosted(None, PendingQuestions(ApproverRequest("editor")), connection.endpoint),
            nursery=nursery,
        )
        for queue in queues:
            nursery.start_soon(queue.run)
        nursery.start_soon(proxy.from_editor, LineReader(proxy_editor, 2**26, print))
        nursery.start_soon(proxy.from_agent, LineReader(proxy_agent, 2**26, print))
        nursery.start_soon(proxy.render)
        nursery.start_soon(editor.listen)
        nursery.start_soon(agent.listen)
        play = Play(entries, tmp_path, editor, agent)
        await play.play()
        nursery.cancel_scope.cancel()
    return play


def reads_no_less(with_proxy, without):
    """Check that a reader sees what it saw without the proxy."""
    for call in without.calls:
        shown = with_proxy.shown(call)
        for line in without.shown(call).splitlines():
            assert line in shown.splitlines(), (type(without), call, line, shown)
        assert "```console\n```" not in shown


def reads_all(received):
    """Check that each editor shows the output that the messages have, and shows it once."""
    best = Reader().read(received)
    for kind in TEXT_READERS:
        reader = kind().read(received)
        for call, state in best.calls.items():
            if state.get("status") in FINAL:
                shown = reader.shown(call).splitlines()
                for line in best.shown(call).splitlines():
                    assert line in shown, (kind, call, line, shown)
    acpx = Acpx().read(received)
    assert all(len(printed) == 1 for printed in acpx.printed.values())


def sent_by_agent(entries):
    return [entry["msg"] for entry in entries if entry["dir"] == "agent->client"]


@pytest.mark.parametrize(("stem", "entries"), ALL, ids=IDS)
@pytest.mark.long
async def test_recorded_conversation_passes_through_the_proxy(stem, entries, tmp_path):
    play = await replay(entries, tmp_path)
    for kind in (Zed,) if play.shows else TEXT_READERS:
        without = kind().read(map(play.now, sent_by_agent(entries)))
        reads_no_less(kind().read(play.editor.all), without)
    if not play.shows:
        reads_all(play.editor.all)
    assert play.passed >= 3
    if stem.startswith(("kimi", "fast")) and "terminal/create" in play.methods.values():
        assert play.answered


CODEX = [entries for stem, entries in ALL if stem == "codex-acp-0.16.0"]


def as_own_terminals(entries, *, at_once):
    """Return a conversation of codex-acp as it is with a client that displays own terminals.

    Codex then embeds a terminal of its own in each tool call, and sends the terminal's output and
    exit status. If `at_once` is true, the commands end at once, and Codex sends no output of the
    terminals. The conversation's client cannot display them, so the proxy has to.
    """
    entries = json.loads(json.dumps(entries))
    for entry in entries:
        params = entry["msg"].get("params", {})
        if entry["msg"].get("method") == "initialize":
            params["clientCapabilities"].pop("_meta", None)
        update = params.get("update", {})
        call = update.get("toolCallId")
        if update.get("sessionUpdate") == "tool_call":
            update["content"] = [{"type": "terminal", "terminalId": call}]
            update["_meta"] = {"terminal_info": {"terminal_id": call, "cwd": "/"}}
        elif "rawOutput" in update:
            raw = update["rawOutput"]
            end = {"terminal_id": call, "exit_code": raw["exit_code"], "signal": None}
            update["_meta"] = {"terminal_exit": end}
            if not at_once:
                output = {"terminal_id": call, "data": raw["aggregated_output"]}
                update["_meta"]["terminal_output"] = output
    return entries


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("recorded", CODEX, ids=name_of)
async def test_output_of_an_agents_own_terminal_is_shown_completely(recorded, at_once, tmp_path):
    play = await replay(as_own_terminals(recorded, at_once=at_once), tmp_path)
    without = Zed().read(sent_by_agent(recorded))
    with_proxy = Reader().read(play.editor.all)
    reads_no_less(with_proxy, without)
    for call in without.calls:
        lines = without.shown(call).splitlines()
        assert lines
        # Exactly once, in a block of its own.
        assert [line for line in with_proxy.shown(call).splitlines() if line in lines] == lines
        assert with_proxy.shown(call).startswith("```console\n")


CLAUDE = [entries for stem, entries in ALL if stem.startswith("claude")]


async def test_claude_shows_no_less_than_to_an_editor_without_the_proxy(tmp_path):
    # The same commands twice: with the output as content, and with terminals of the agent's own.
    plain, own = json.loads(json.dumps(CLAUDE))
    own[0]["msg"]["params"]["clientCapabilities"].pop("_meta")
    play = await replay(own, tmp_path)
    reads_all(play.editor.all)
    # marimo appends what is sent again while a call runs; the proxy knows it by its name.
    for kind in (kind for kind in TEXT_READERS if kind is not Marimo):
        without = kind().read(sent_by_agent(plain))
        with_proxy = kind().read(play.editor.all)
        calls = dict(zip(without.lines_of_calls(), with_proxy.lines_of_calls(), strict=True))
        assert len(calls) == 3
        for before, after in calls.items():
            # "Run a command" describes a pending call; its terminal takes this place.
            assert set(before) - set(after) <= {"```", "Run a command"}, kind
            numbers = [line for line in after if line.isdigit()]
            assert len(numbers) == len(set(numbers)), kind


def test_transcripts_of_all_agents_are_present():
    assert len(ALL) == 63 + 2 * 8
    assert {stem for stem, _ in ALL} == {file.stem for file in FILES}
    assert len(FILES) == 4 + 8
