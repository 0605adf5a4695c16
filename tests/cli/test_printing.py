"""Output on stdout: completeness with any kind of stdout, and JSON without control characters."""

import json
import os
import select
import subprocess
import sys

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from acpterm.cli._output import json_text
from acpterm.commands.output import trio_stdout
from tests.support.depth import DEADLINE_S
from tests.support.processes import environment

# C1 controls, bidirectional controls, invisible characters, and one outside the BMP.
CONTROLS = "\x7f\x80\x9b\x9d\x9f\u061c\u200b\u200d\u202e\u2028\u2066\ufeff\U000e0041"


def test_json_text_escapes_control_characters():
    text = json_text({"a": f"é漢👩{CONTROLS}"})
    assert text == (
        '{"a":"é漢👩\\u007f\\u0080\\u009b\\u009d\\u009f\\u061c\\u200b\\u200d\\u202e\\u2028\\u2066'
        '\\ufeff\\udb40\\udc41"}'
    )
    assert json.loads(text) == {"a": f"é漢👩{CONTROLS}"}


@given(st.recursive(st.text() | st.text(CONTROLS), lambda inner: st.dictionaries(st.text(), inner)))
@pytest.mark.long
def test_json_text_has_the_same_value_and_no_control_characters(value):
    text = json_text(value)
    assert json.loads(text) == value
    assert not set(CONTROLS) & set(text)
    # The same applies to a value that is JSON already, in any layout.
    raw = json_text(Raw(json.dumps(value, ensure_ascii=False, indent="\t").encode()))
    assert json.loads(raw) == value
    assert not set(CONTROLS) & set(raw)


@pytest.mark.costly
@pytest.mark.parametrize("call", ["echo('x' * 300000)", "echo_once('x' * 300000)"])
def test_echo_prints_everything_to_a_non_blocking_pipe(call):
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    code = f"from acpterm.cli._output import echo, echo_once; {call}"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=writes, stderr=subprocess.PIPE, env=environment()
    ) as process:
        os.close(writes)
        with os.fdopen(reads, "rb") as pipe:
            # Wait until the pipe has data: the writer then blocks on the full pipe.
            assert select.select([pipe], [], [], 30)[0]
            assert pipe.read() == b"x" * 300000 + b"\n"
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0


async def test_pipe_with_unread_data_is_polled_once_a_second(monkeypatch, tmp_path, autojump_clock):
    polls = 0

    class Poll:
        def register(self, fd, events):
            pass

        def poll(self, _):
            nonlocal polls
            polls += 1
            assert polls < 100
            return []

    monkeypatch.setattr(trio_stdout.select, "poll", Poll)
    os.mkfifo(tmp_path / "fifo")
    fd = os.open(tmp_path / "fifo", os.O_RDWR)
    try:
        os.write(fd, b"unread\n")
        with trio.move_on_after(10.5):
            await trio_stdout._unread(fd)
    finally:
        os.close(fd)
    assert polls == 11


async def test_pipe_without_a_reader_is_detected():
    reads, writes = os.pipe()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio_stdout._unread, writes)
            await trio.testing.wait_all_tasks_blocked()
            os.close(reads)
            with trio.fail_after(DEADLINE_S):
                while nursery.child_tasks:
                    await trio.lowlevel.checkpoint()
    finally:
        os.close(writes)
