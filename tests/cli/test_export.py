"""`acpterm export`: a terminal as a recording, text, HTML or SVG, written atomically."""

import json
import os
import shutil
import time
from xml.etree import ElementTree as ET

import pytest
import trio

from acpterm.recording import asciicast
from tests.support.agent import agent_at
from tests.support.commands import command_environment, run
from tests.support.daemon import daemon
from tests.support.hosts import agent_here
from tests.support.polling import poll
from tests.support.starting import ACPTERM

PRINT_SLOWLY = r"printf 'one\n'; sleep 0.4; printf '\033[31mtwo\033[m\n'; exit 3"


def output_of_cast(data: str) -> str:
    cast = asciicast.read([line.encode() for line in data.splitlines(keepends=True)])
    return "".join(event.data for event in cast.events if event.code == "o")


async def test_asciicast_has_all_output_with_its_times(agent, path, tmp_path):
    began = time.monotonic()
    command = r"stty -echo; echo one; read x; printf '\033[31mtwo\033[m\n'; exit 3"
    terminal = await agent.create_until("one\n", command, own={"cols": 90, "rows": 30})
    await trio.sleep(0.1)
    await agent.type(terminal, "\n")
    await agent.wait(terminal)
    ended = time.monotonic()
    file = tmp_path / "a.cast"
    file.write_text("before")
    file.chmod(0o644)
    assert await run(path, "export", terminal, "-o", str(file)) == (0, "", "")
    assert file.stat().st_mode & 0o777 == 0o600
    head, *events = map(json.loads, file.read_text().splitlines())
    assert (head["version"], head["width"], head["height"]) == (2, 90, 30)
    *outputs, (_, last, _) = events
    assert ({code for _, code, _ in outputs}, last) == ({"o"}, "m")
    assert "".join(data for _, _, data in outputs) == "one\r\n\x1b[31mtwo\x1b[m\r\n"
    second = next(at for at, _, data in outputs if "two" in data)
    # The times of the recording are rounded to milliseconds.
    assert 0.09 < second - outputs[0][0] < ended - began
    done = await run(path, "export", terminal, "--format", "asciicast")
    assert (done.out, done.err) == (file.read_text(), "")


@pytest.mark.skipif(shutil.which("asciinema") is None, reason="asciinema is not installed")
@pytest.mark.long
async def test_asciinema_plays_an_exported_cast(agent, path, tmp_path):
    async with agent_here() as window:
        terminal = await agent.create_ended(PRINT_SLOWLY)
        file = str(tmp_path / "a.cast")
        await run(path, "export", terminal, "-o", file)
        for command in ("cat", "play"):
            text, status = await window.run("asciinema", args=[command, file])
            assert (text.split(), status["exitCode"]) == (["one", "two"], 0)


@pytest.mark.long
async def test_file_is_unchanged_when_the_export_fails(agent, path, tmp_path):
    terminal = await agent.create_ended("echo one")
    directory = tmp_path / "directory"
    directory.mkdir()
    for file in (directory, directory / "none" / "a"):
        done = await run(path, "export", terminal, "-o", str(file))
        assert (done.status, done.out) == (1, "")
        assert done.err.startswith(f"acpterm: {file}: ")
    kept = directory / "kept"
    kept.write_text("kept")
    assert (await run(path, "export", "nothing", "-o", str(kept))).status == 1
    assert kept.read_text() == "kept"
    assert os.listdir(directory) == ["kept"]


async def test_export_prints_the_text_of_logs(agent, path):
    terminal = await agent.create_ended(r"printf '1%%\r\033[31mdone\nhalf'")
    logs = await run(path, "logs", terminal)
    assert logs == (0, "done\nhalf\n", "")
    assert await run(path, "export", terminal, "--format", "text") == logs


@pytest.mark.long
async def test_export_reports_that_the_beginning_of_text_is_missing(agent, path):
    terminal = await agent.create_ended("seq 500000; echo last")
    done = await run(path, "export", terminal, "--format", "text")
    assert (done.status, done.err) == (0, "acpterm: the beginning is missing\n")
    assert not done.out.startswith("1\n")
    assert done.out.endswith("500000\nlast\n")


async def test_screen_is_exported_as_a_page_or_a_picture(agent, path):
    terminal = await agent.create_ended(PRINT_SLOWLY)
    page = (await run(path, "export", terminal, "--format", "html")).out
    assert '<pre>one\n<span style="color:#cc3b3b">two</span>\n' in page
    picture = (await run(path, "export", terminal, "--format", "svg")).out
    assert "".join(ET.fromstring(picture)[-1].itertext()).split() == ["one", "two"]


async def test_page_has_the_rows_above_the_screen_in_colour(agent, path):
    terminal = await agent.create_ended("seq 100; printf '\\033[31mred\\033[m\\n'; seq 900")
    page = (await run(path, "export", terminal, "--format", "html")).out
    rows = page.partition("<pre>")[2].partition("</pre>")[0].split()
    expected = [*map(str, range(1, 101)), "<span", 'style="color:#cc3b3b">red</span>']
    assert rows == [*expected, *map(str, range(1, 901))]


@pytest.mark.long
async def test_page_has_all_rows_that_are_retained(agent, path):
    terminal = await agent.create_ended("seq 30000")
    done = await run(path, "export", terminal, "--format", "html")
    rows = done.out.partition("<pre>")[2].partition("</pre>")[0].split()
    assert (rows, done.err) == ([*map(str, range(1, 30001))], "")
    terminal = await agent.create_ended("yes | head -c 20M; seq 30000")
    done = await run(path, "export", terminal, "--format", "html")
    assert done.err.startswith("acpterm: the beginning is missing: ")


@pytest.mark.long
async def test_recording_is_exported_when_it_has_more_output(tmp_path):
    directory = tmp_path / "recordings"
    env = {**command_environment(str(tmp_path / "run" / "agent.sock"))}
    env |= {"ACPTERM_RECORD": "true", "ACPTERM_RECORD_DIR": str(directory)}
    async with daemon(tmp_path, env=env) as (_, path), agent_at(path) as agent:
        terminal = await agent.create_ended(
            "echo first; sleep 0.5; seq 300000 | cut -c1-4; echo last"
        )
        (file,) = await poll(lambda: list(directory.glob("*.cast")) or None)
        await poll(lambda: "exited with 0" in file.read_text())
        done = await run(path, "export", terminal)
        assert done.out == file.read_text()
        assert output_of_cast(done.out).startswith("first\r\n")
        assert done.err == ""
        # The recording is copied unchanged, even if it is damaged.
        with file.open("a") as more:
            more.write("cut")
        number = len(file.read_text().splitlines())
        done = await run(path, "export", terminal)
        assert done.out == file.read_text()
        expected = (
            f"1 line of the recording cannot be read: it is line {number}, which is no JSON: "
        )
        assert done.err.startswith(f"acpterm: {expected}")
        # The retained output is incomplete, but not empty.
        file.unlink()
        done = await run(path, "export", terminal)
        assert "first" not in output_of_cast(done.out)
        assert output_of_cast(done.out).endswith("last\r\n")


@pytest.mark.costly
@pytest.mark.parametrize("record_input", ["true", "false"])
async def test_recording_is_exported_when_it_has_as_much_output_and_other_content(
    tmp_path, record_input
):
    directory = tmp_path / "recordings"
    env = {**command_environment(str(tmp_path / "run" / "agent.sock"))}
    env |= {"ACPTERM_RECORD": "true", "ACPTERM_RECORD_DIR": str(directory)}
    env |= {"ACPTERM_RECORD_INPUT": record_input}
    async with daemon(tmp_path, env=env) as (_, path), agent_at(path) as agent:
        terminal = await agent.create_until("ready", "echo ready; read x; echo got $x")
        await agent.type(terminal, "hi\n")
        await agent.wait(terminal)
        (file,) = await poll(lambda: list(directory.glob("*.cast")) or None)
        await poll(lambda: "exited with 0" in file.read_text())
        done = await run(path, "export", terminal)
        assert (done.out, done.err) == (file.read_text(), "")
        assert ('"i","hi' in done.out) == (record_input == "true")
        assert json.loads(done.out.splitlines()[0])["env"]["TERM"]


@pytest.mark.long
async def test_export_exits_with_0_when_its_pipe_has_no_reader(agent, path):
    terminal = await agent.create_ended("seq 100000")
    line = f'"{ACPTERM[0]}" -m acpterm export {terminal} | head -c 10'
    done = await trio.run_process(
        ["bash", "-c", f"set -o pipefail; {line}"],
        env=command_environment(path),
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
@pytest.mark.long
async def test_pipe_or_device_is_written_to_in_place(agent, path, line, printed):
    terminal = await agent.create_ended("echo one")
    acpterm = f'"{ACPTERM[0]}" -m acpterm'
    line = line.format(
        export=f"{acpterm} export --format text {terminal}",
        screen=f"{acpterm} screen {terminal}",
    )
    done = await trio.run_process(
        ["bash", "-c", f"set -o pipefail; {line}"],
        env=command_environment(path),
        capture_stdout=True,
        capture_stderr=True,
    )
    assert (done.stdout.decode(), done.stderr) == (printed, b"")


@pytest.mark.costly
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
async def test_format_follows_from_the_file_name(agent, path, tmp_path, file, begins):
    terminal = await agent.create_ended("echo one")
    file = tmp_path / file
    assert await run(path, "export", terminal, "-o", str(file)) == (0, "", "")
    assert file.read_text().startswith(begins)
    # An explicit --format takes precedence.
    await run(path, "export", terminal, "-o", str(file), "--format", "text")
    assert file.read_text() == "one\n"


async def test_unknown_file_format_is_an_error(path, tmp_path):
    done = await run(path, "export", "x", "-o", str(tmp_path / "a.png"))
    assert (done.status, done.out) == (2, "")
    assert ".png is none of .cast, .txt, .log, .html, .htm, .svg: say --format" in done.err
