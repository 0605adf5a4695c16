"""`acpterm export`: a terminal as a recording, text, a page or a picture; whole or not at all."""

import json
import os
import shutil
from xml.etree import ElementTree as ET

import pytest
import trio

from acpterm.client import replay
from tests.support.commands import run, surroundings
from tests.support.hosts import ACPTERM, agent_at, agent_here, daemon, poll

SLOW = r"printf 'one\n'; sleep 0.4; printf '\033[31mtwo\033[m\n'; exit 3"


def shown(data: str) -> str:
    cast = replay.read([line.encode() for line in data.splitlines(keepends=True)])
    return "".join(event.data for event in cast.events if event.code == "o")


async def test_an_asciicast_has_all_of_it_with_its_times(path, tmp_path):
    async with agent_at(path) as agent:
        terminal = await agent.create(SLOW, own={"cols": 90, "rows": 30})
        await agent.wait(terminal)
        file = tmp_path / "a.cast"
        file.write_text("before")
        file.chmod(0o644)
        assert await run(path, "export", terminal, "-o", str(file)) == (0, "", "")
        assert file.stat().st_mode & 0o777 == 0o600
        head, *events = map(json.loads, file.read_text().splitlines())
        assert (head["version"], head["width"], head["height"]) == (2, 90, 30)
        assert [event[1] for event in events] == ["o", "o", "m"]
        assert events[1][0] - events[0][0] == pytest.approx(0.4, abs=0.3)
        done = await run(path, "export", terminal, "--format", "asciicast")
        assert (done.out, done.err) == (file.read_text(), "")


@pytest.mark.skipif(shutil.which("asciinema") is None, reason="asciinema is not installed")
async def test_asciinema_plays_it(path, tmp_path):
    async with agent_at(path) as agent, agent_here() as window:
        terminal = await agent.create(SLOW)
        await agent.wait(terminal)
        file = str(tmp_path / "a.cast")
        await run(path, "export", terminal, "-o", file)
        for what in ("cat", "play"):
            text, status = await window.run("asciinema", args=[what, file])
            assert (text.split(), status["exitCode"]) == (["one", "two"], 0)


async def test_a_file_that_cannot_be_written_is_left_as_it_was(path, tmp_path):
    async with agent_at(path) as agent:
        terminal = await agent.create("echo one")
        await agent.wait(terminal)
        folder = tmp_path / "folder"
        folder.mkdir()
        for file in (folder, folder / "none" / "a"):
            done = await run(path, "export", terminal, "-o", str(file))
            assert (done.status, done.out) == (1, "")
            assert done.err.startswith(f"acpterm: {file}: ")
        kept = folder / "kept"
        kept.write_text("kept")
        assert (await run(path, "export", "nothing", "-o", str(kept))).status == 1
        assert kept.read_text() == "kept"
        assert os.listdir(folder) == ["kept"]


async def test_text_is_that_of_logs(path):
    async with agent_at(path) as agent:
        terminal = await agent.create(r"printf '1%%\r\033[31mdone\nhalf'")
        await agent.wait(terminal)
        assert await run(path, "export", terminal, "--format", "text") == (0, "done\nhalf\n", "")


async def test_it_is_said_that_text_is_without_its_beginning(path):
    async with agent_at(path) as agent:
        terminal = await agent.create("seq 500000; echo last")
        await agent.wait(terminal)
        done = await run(path, "export", terminal, "--format", "text")
        assert (done.status, done.err) == (0, "acpterm: the beginning is missing\n")
        assert not done.out.startswith("1\n")
        assert done.out.endswith("500000\nlast\n")


async def test_the_screen_is_a_page_or_a_picture(path):
    async with agent_at(path) as agent:
        terminal = await agent.create(SLOW)
        await agent.wait(terminal)
        page = (await run(path, "export", terminal, "--format", "html")).out
        assert '<pre>one\n<span style="color:#cc3b3b">two</span>\n' in page
        picture = (await run(path, "export", terminal, "--format", "svg")).out
        assert "".join(ET.fromstring(picture)[-1].itertext()).split() == ["one", "two"]


async def test_a_recording_is_taken_if_it_has_more(tmp_path):
    folder = tmp_path / "recordings"
    env = {**surroundings(str(tmp_path / "run" / "agent.sock"))}
    env |= {"ACPTERM_RECORD": "true", "ACPTERM_RECORD_DIR": str(folder)}
    async with daemon(tmp_path, env=env) as (_, path), agent_at(path) as agent:
        terminal = await agent.create("echo first; sleep 0.5; seq 300000 | cut -c1-4; echo last")
        await agent.wait(terminal)
        (file,) = await poll(lambda: list(folder.glob("*.cast")) or None)
        await poll(lambda: "exited with 0" in file.read_text())
        done = await run(path, "export", terminal)
        assert done.out == file.read_text()
        assert shown(done.out).startswith("first\r\n")
        assert done.err == ""
        # It is written as it is, whatever has become of it.
        with file.open("a") as more:
            more.write("cut")
        number = len(file.read_text().splitlines())
        done = await run(path, "export", terminal)
        assert done.out == file.read_text()
        said = f"1 line of the recording cannot be read: it is line {number}, which is no JSON: "
        assert done.err.startswith(f"acpterm: {said}")
        # What was kept is not all of it, and is something.
        file.unlink()
        done = await run(path, "export", terminal)
        assert "first" not in shown(done.out)
        assert shown(done.out).endswith("last\r\n")


@pytest.mark.parametrize("record_input", ["true", "false"])
async def test_of_two_that_show_as_much_the_recording_is_taken_for_what_else_it_tells(
    tmp_path, record_input
):
    folder = tmp_path / "recordings"
    env = {**surroundings(str(tmp_path / "run" / "agent.sock"))}
    env |= {"ACPTERM_RECORD": "true", "ACPTERM_RECORD_DIR": str(folder)}
    env |= {"ACPTERM_RECORD_INPUT": record_input}
    async with daemon(tmp_path, env=env) as (_, path), agent_at(path) as agent:
        terminal = await agent.create("echo ready; read x; echo got $x")
        await agent.until_output(terminal, "ready")
        await agent.type(terminal, "hi\n")
        await agent.wait(terminal)
        (file,) = await poll(lambda: list(folder.glob("*.cast")) or None)
        await poll(lambda: "exited with 0" in file.read_text())
        done = await run(path, "export", terminal)
        assert (done.out, done.err) == (file.read_text(), "")
        assert ('"i","hi' in done.out) == (record_input == "true")
        assert json.loads(done.out.splitlines()[0])["env"]["TERM"]


async def test_nobody_who_reads_is_no_error(path):
    async with agent_at(path) as agent:
        terminal = await agent.create("seq 100000")
        await agent.wait(terminal)
        line = f'"{ACPTERM[0]}" -m acpterm export {terminal} | head -c 10'
        done = await trio.run_process(
            ["bash", "-c", f"set -o pipefail; {line}"],
            env=surroundings(path),
            capture_stdout=True,
            capture_stderr=True,
        )
        assert (done.stdout, done.stderr) == (b'{"version"', b"")


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("{export} -o /dev/stdout | cat", "one\n"),
        ("{export} -o >(cat); wait $!", "one\n"),
        ("{export} -o /dev/null && echo written", "written\n"),
        ("{screen} --svg /dev/stdout | head -c 4", "<svg"),
    ],
)
async def test_a_pipe_or_a_device_is_written_to_as_it_is(path, line, printed):
    async with agent_at(path) as agent:
        terminal = await agent.create("echo one")
        await agent.wait(terminal)
        acpterm = f'"{ACPTERM[0]}" -m acpterm'
        line = line.format(
            export=f"{acpterm} export --format text {terminal}",
            screen=f"{acpterm} screen {terminal}",
        )
        done = await trio.run_process(
            ["bash", "-c", f"set -o pipefail; {line}"],
            env=surroundings(path),
            capture_stdout=True,
            capture_stderr=True,
        )
        assert (done.stdout.decode(), done.stderr) == (printed, b"")


@pytest.mark.parametrize(
    ("file", "begins"),
    [
        ("a.svg", "<svg"),
        ("a.HTML", "<!DOCTYPE html>"),
        ("a.txt", "one\n"),
        ("a.cast", '{"version":2'),
        ("none", '{"version":2'),
    ],
)
async def test_format_follows_from_the_files_name(path, tmp_path, file, begins):
    async with agent_at(path) as agent:
        terminal = await agent.create("echo one")
        await agent.wait(terminal)
        file = tmp_path / file
        assert await run(path, "export", terminal, "-o", str(file)) == (0, "", "")
        assert file.read_text().startswith(begins)
        # What was said counts.
        await run(path, "export", terminal, "-o", str(file), "--format", "text")
        assert file.read_text() == "one\n"


async def test_a_file_of_an_unknown_format_is_an_error(path, tmp_path):
    done = await run(path, "export", "x", "-o", str(tmp_path / "a.png"))
    assert (done.status, done.out) == (2, "")
    assert ".png is none of .cast, .txt, .log, .html, .htm, .svg: say --format" in done.err
