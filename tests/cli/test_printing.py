"""What commands print on stdout: all of it, whatever stdout is; JSON that steers no window."""

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
from acpterm.client.user.output import stdout
from tests.support.processes import environment

# Controls of C1, what turns the direction of text, what is not seen, and some beyond the BMP.
STEERING = "\x7f\x80\x9b\x9d\x9f\u061c\u200b\u200d\u202e\u2028\u2066\ufeff\U000e0041"


def test_what_steers_a_window_is_escaped_in_json():
    said = json_text({"a": f"é漢👩{STEERING}"})
    assert said == (
        '{"a":"é漢👩\\u007f\\u0080\\u009b\\u009d\\u009f\\u061c\\u200b\\u200d\\u202e\\u2028\\u2066'
        '\\ufeff\\udb40\\udc41"}'
    )
    assert json.loads(said) == {"a": f"é漢👩{STEERING}"}


@given(st.recursive(st.text() | st.text(STEERING), lambda inner: st.dictionaries(st.text(), inner)))
def test_it_is_json_of_the_same_value(value):
    said = json_text(value)
    assert json.loads(said) == value
    assert not set(STEERING) & set(said)
    # What has come as JSON likewise, however it is laid out.
    raw = json_text(Raw(json.dumps(value, ensure_ascii=False, indent="\t").encode()))
    assert json.loads(raw) == value
    assert not set(STEERING) & set(raw)


@pytest.mark.parametrize("way", ["echo('x' * 300000)", "echo_once('x' * 300000)"])
def test_all_is_printed_to_a_pipe_that_somebody_has_made_non_blocking(way):
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    code = f"from acpterm.cli._output import echo, echo_once; {way}"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=writes, stderr=subprocess.PIPE, env=environment()
    ) as process:
        os.close(writes)
        with os.fdopen(reads, "rb") as pipe:
            # It is full when it has that much.
            assert select.select([pipe], [], [], 30)[0]
            assert pipe.read() == b"x" * 300000 + b"\n"
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0


async def test_a_pipe_with_lines_that_it_is_open_to_read_itself_is_looked_at_now_and_then(
    monkeypatch, tmp_path, autojump_clock
):
    looks = 0

    class Poll:
        def register(self, fd, events):
            pass

        def poll(self, _):
            nonlocal looks
            looks += 1
            assert looks < 100
            return []

    monkeypatch.setattr(stdout.select, "poll", Poll)
    os.mkfifo(tmp_path / "fifo")
    fd = os.open(tmp_path / "fifo", os.O_RDWR)
    try:
        os.write(fd, b"unread\n")
        with trio.move_on_after(10.5):
            await stdout._unread(fd)
    finally:
        os.close(fd)
    assert looks == 11


async def test_a_pipe_that_nobody_reads_any_more_is_seen_to_be_one():
    reads, writes = os.pipe()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stdout._unread, writes)
            await trio.testing.wait_all_tasks_blocked()
            os.close(reads)
            with trio.fail_after(10):
                while nursery.child_tasks:
                    await trio.lowlevel.checkpoint()
    finally:
        os.close(writes)
