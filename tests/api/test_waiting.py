"""Waits for output, floods, and incomplete characters, with real programs."""

import re

import anyio
import anyio.lowlevel
import pytest

import acpterm
from acpterm.api import waiting
from tests.api.test_client import ROLES, connect
from tests.support.backends import on_both_backends
from tests.support.depth import DEADLINE_S


@on_both_backends
async def test_wait_for_ends_for_each_reason(settings, monkeypatch):
    monkeypatch.setattr(waiting, "_GRACE_S", DEADLINE_S)
    async with connect(settings, "agent") as client:
        terminal = await client.create("echo one; read x; echo two; read x; sleep 0.2; exit 4")
        match = await terminal.wait_for(re.compile("O.E\n", re.IGNORECASE), timeout=DEADLINE_S)
        assert (match.reason, match.match[0], match.text) == ("match", "one\n", "one\n")
        idle = await terminal.wait_for("two", since=match.position, idle=0.1, timeout=DEADLINE_S)
        assert (idle.reason, idle.text, idle.position) == ("idle", "", match.position)
        late = await terminal.wait_for("two", timeout=0.1)
        assert (late.reason, late.match, late.text) == ("timeout", None, "one\n")
        await terminal.write("\n")
        waits = await terminal.wait_for("three", until_input=True, timeout=DEADLINE_S)
        assert (waits.reason, waits.waiting_for_input) == ("input", True)
        await terminal.write("\n")
        over = await terminal.wait_for("three", since=waits.position, timeout=DEADLINE_S)
        assert (over.reason, over.exit.code) == ("exit", 4)
        again = await terminal.wait_for("three", since=over.position)
        assert (again.reason, again.text) == ("exit", "")
        found = await terminal.wait_for("^two$")
        assert found.reason == "match"


@on_both_backends
async def test_match_may_span_several_reads_but_not_what_was_before(settings):
    async with connect(settings, "agent") as client:
        terminal = await client.create("stty -echo; echo be; while read x; do printf $x; done")
        ready = await terminal.wait_for("be\n", timeout=DEADLINE_S)
        async with anyio.create_task_group() as tasks:
            found = []

            async def wait():
                found.append(
                    await terminal.wait_for(r"b.*\d+;", since=ready.position, timeout=DEADLINE_S)
                )

            tasks.start_soon(wait)
            for part in ("a", "b", "c1", "23;"):
                position = (await terminal.read()).position
                await terminal.write(f"{part}\n")
                await terminal.read(position, wait=DEADLINE_S)
        assert found[0].match[0] == "bc123;"
        assert found[0].text == "abc123;"


@on_both_backends
@pytest.mark.long
async def test_wait_for_keeps_a_limited_part_of_a_flood(settings, monkeypatch):
    monkeypatch.setattr(waiting, "TEXT_CHARS_MAX", 100_000)
    async with connect(settings, "agent") as client:
        terminal = await client.create("seq 1 400000; echo THE END; read x")
        ended = await terminal.wait_for("THE END\n", timeout=DEADLINE_S)
        assert ended.reason == "match"
        assert len(ended.text) <= 100_000
        assert ended.lost > 2_000_000
        assert ended.text.endswith("400000\nTHE END\n")


@on_both_backends
@pytest.mark.long
async def test_unread_flood_delays_nothing_and_reading_says_what_is_lost(settings):
    async with connect(settings, "agent") as client:
        flood, quiet = await client.create("yes"), await client.create("cat")
        with anyio.fail_after(DEADLINE_S):
            while (await flood.info()).position < 4 << 20:
                await quiet.screen()
        part = await flood.read(10)
        assert part.lost > 0
        assert part.position >= 10 + part.lost
        assert set(part.text) <= {"y", "\n"}
        await flood.kill()
        assert (await flood.wait(DEADLINE_S)).ended_by == "agent"


@ROLES
@on_both_backends
async def test_half_a_character_is_held_back(settings, role):
    async with connect(settings, role) as client:
        terminal = await client.create(
            "stty -echo; printf 'a\\303'; read x; printf '\\251b'; read x"
        )
        first = await terminal.wait_for(until_input=True, timeout=DEADLINE_S)
        assert (first.text, first.position) == ("a", 1)
        assert (await terminal.read(1, wait=0.05)).text == ""
        assert (await terminal.read_raw(1)).data == b"\xc3"
        await terminal.write("\n")
        rest = await terminal.wait_for("b", since=1, timeout=DEADLINE_S)
        assert (rest.text, rest.lost) == ("éb", 0)
        await terminal.release()


@ROLES
@on_both_backends
async def test_two_tasks_use_one_terminal(settings, role):
    async with connect(settings, role) as client:
        terminal = await client.create("cat")
        results = {}

        async def follow(name):
            results[name] = await terminal.wait_for("line 19\n", timeout=DEADLINE_S)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, "one")
            tasks.start_soon(follow, "other")
            for number in range(20):
                await terminal.write(f"line {number}\n")
        assert {waited.reason for waited in results.values()} == {"match"}
        await terminal.release()


@on_both_backends
async def test_collect_returns_soon_when_the_program_asks(settings):
    async with connect(settings, "agent") as client:
        terminal = await client.create("printf 'Name? '; read x; echo Hello $x; read x; sleep 60")
        started = anyio.current_time()
        asked = await waiting.collect(terminal, None, 30, 40, 50)
        assert (asked.reason, asked.text) == ("input", "Name? ")
        await terminal.write("Ada\n")
        asked = await waiting.collect(terminal, asked.position, 30, 40, 50)
        assert (asked.reason, asked.text) == ("input", "Ada\nHello Ada\n")
        assert anyio.current_time() - started < DEADLINE_S


@pytest.mark.costly
@on_both_backends
async def test_collect_waits_until_output_settles_and_at_most_the_maximum(settings):
    async with connect(settings, "agent") as client:
        steady = await client.create("while :; do echo tick; sleep 0.05; done")
        started = anyio.current_time()
        assert (await waiting.collect(steady, None, 0.1, 5.0, 0.5)).reason == "timeout"
        assert anyio.current_time() - started >= 0.5
        burst = await client.create("for i in 1 2 3; do echo $i; sleep 0.1; done; sleep 60")
        text, position = "", None
        # On a busy machine, the output settles before the end.
        with anyio.fail_after(DEADLINE_S):
            while text != "1\n2\n3\n":
                started = anyio.current_time()
                settled = await waiting.collect(burst, position, 0.0, 1.0, 30.0)
                assert settled.reason == "idle"
                assert anyio.current_time() - started >= 1.0
                text, position = text + settled.text, settled.position
        brief = await client.create("echo over; exit 2")
        ended = await waiting.collect(brief, None, 20, 20, 30)
        assert (ended.reason, ended.text, ended.exit.code) == ("exit", "over\n", 2)


@on_both_backends
async def test_collect_does_not_read_every_part_of_a_flood():
    class Flood:
        reads = 0

        async def read(self, since, **_):
            await anyio.lowlevel.checkpoint()
            self.reads += 1
            return acpterm.Output("y" * 100_000, (since or 0) + 10_000_000, 9_900_000)

    flood = Flood()
    waited = await waiting.collect(flood, None, 0.1, 5.0, 0.5)
    assert waited.reason == "timeout"
    assert waited.lost >= 9_900_000 * flood.reads
    assert 0 < flood.reads < 10


@on_both_backends
async def test_wait_is_over_a_little_after_its_limit_if_the_daemon_is_silent(monkeypatch):
    monkeypatch.setattr(waiting, "_GRACE_S", 0.05)

    class Silent:
        async def read(self, *_, **__):
            await anyio.sleep_forever()

    waited = await waiting.wait_for(Silent(), "x", since=7, timeout=0.05)
    assert (waited.reason, waited.position) == ("timeout", 7)


@ROLES
@on_both_backends
async def test_keys_respect_the_mode_of_the_cursor_keys(settings, role):
    async with connect(settings, role) as client:
        terminal = await client.create(
            "stty raw -echo; printf ready; head -c 3 | od -An -c; printf '\\033[?1h'; printf set; "
            "head -c 4 | od -An -c"
        )
        await terminal.wait_for("ready", timeout=DEADLINE_S)
        await terminal.keys("Up")
        await terminal.wait_for("set", timeout=DEADLINE_S)
        with pytest.raises(ValueError, match="no key 'Upp'"):
            await terminal.keys("C-c", "Upp")
        await terminal.keys("Up", "C-c")
        await terminal.wait(DEADLINE_S)
        text = (await terminal.output()).text
        assert "033   [   A" in text
        assert "033   O   A 003" in text
        await terminal.release()


@pytest.mark.long
def test_wait_for_rejects_an_invalid_pattern_before_it_waits():
    with pytest.raises(re.error):
        anyio.run(acpterm.Terminal(None, None, "x").wait_for, "(")
