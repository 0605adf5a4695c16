"""The wire log: its contents, and the mode of its file."""

import json
import os
import stat

import pytest
import trio
import trio.testing

from acpterm.agents.wirelog import LogError, LoggedStream, open_log


def entries(path):
    text = path.read_bytes().decode()
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


async def test_each_message_is_a_line_with_time_and_direction(tmp_path):
    path = tmp_path / "log"
    async with open_log(str(path)) as log:
        log.write("a->b", b'{"id": 1,  "x": [1.50, null]}')
        log.write("b->a", '{"é":"\\n"}'.encode())
    logged = entries(path)
    assert [(entry["dir"], entry["msg"]) for entry in logged] == [
        ("a->b", {"id": 1, "x": [1.5, None]}),
        ("b->a", {"é": "\n"}),
    ]
    times = [entry["t"] for entry in logged]
    assert 0 <= times[0] <= times[1] < 10
    assert all(set(entry) == {"t", "dir", "msg"} for entry in logged)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"Welcome!", "Welcome!"),
        (b"{broken", "{broken"),
        (b"\xff\x1b[31m", "\ufffd\x1b[31m"),
        (b'{"a":"\xff"}', '{"a":"\ufffd"}'),
        (b"[" * 100_000, "[" * 100_000),
    ],
)
async def test_invalid_json_is_logged_as_text(tmp_path, line, text):
    path = tmp_path / "log"
    async with open_log(str(path)) as log:
        log.write("b->a", line)
        log.write("b->a", b"{}")
    first, second = entries(path)
    assert (first["text"], second["msg"]) == (text, {})
    assert "msg" not in first


async def test_log_file_is_private(tmp_path):
    before = os.umask(0)
    try:
        async with open_log(str(tmp_path / "log")):
            pass
    finally:
        os.umask(before)
    assert mode(tmp_path / "log") == 0o600


async def test_existing_file_is_truncated_and_made_private(tmp_path):
    path = tmp_path / "log"
    path.write_text("what was, and was for all\n" * 100)
    path.chmod(0o666)
    async with open_log(str(path)) as log:
        assert mode(path) == 0o600
        log.write("a->b", b"{}")
    assert len(entries(path)) == 1


async def test_mode_of_a_device_is_unchanged():
    before = stat.S_IMODE(os.stat("/dev/null").st_mode)
    async with open_log("/dev/null") as log:
        log.write("a->b", b"{}")
    after = stat.S_IMODE(os.stat("/dev/null").st_mode)
    assert after == before


@pytest.mark.parametrize(
    ("name", "why"), [("missing/log", "No such file"), (".", "Is a directory")]
)
async def test_error_says_why_the_log_cannot_be_opened(tmp_path, name, why):
    with pytest.raises(LogError, match=f"the log '.*{name}' cannot be written: {why}"):
        async with open_log(str(tmp_path / name)):
            raise AssertionError


async def test_nothing_is_written_without_a_file():
    async with open_log(None) as log:
        log.write("a->b", b"{}")
        await log.drain()


async def test_full_disk_is_reported_once_and_is_not_fatal(capfd):
    async with open_log("/dev/full") as log:
        for _ in range(3):
            log.write("a->b", b"{}")
            await trio.testing.wait_all_tasks_blocked(0.05)
        await log.drain()
    assert capfd.readouterr().err == (
        "acpterm: the log '/dev/full' can no longer be written: "
        "[Errno 28] No space left on device\n"
    )


async def test_logged_stream_logs_lines_in_both_directions_and_one_that_is_cut(tmp_path):
    ours, theirs = trio.testing.memory_stream_pair()
    path = tmp_path / "log"
    async with open_log(str(path)) as log:
        stream = LoggedStream(ours, log, ("sent", "received"))
        await stream.send_all(b'{"n":1}\n{"n"')
        await stream.send_all(b":2}\n")
        assert await theirs.receive_some() == b'{"n":1}\n{"n":2}\n'
        await theirs.send_all(b'{"n":3}\n\n{"n":4')
        await stream.receive_some()
        await theirs.send_all(b"}\ngarbage\nhalf")
        await stream.receive_some()
        await theirs.aclose()
        assert await stream.receive_some() == b""
        await stream.aclose()
    assert [(entry["dir"], entry.get("msg", entry.get("text"))) for entry in entries(path)] == [
        ("sent", {"n": 1}),
        ("sent", {"n": 2}),
        ("received", {"n": 3}),
        ("received", {"n": 4}),
        ("received", "garbage"),
        ("received", "half"),
    ]


async def test_close_waits_until_everything_is_written(tmp_path):
    path = tmp_path / "log"
    async with open_log(str(path)) as log:
        for number in range(10_000):
            log.write("a->b", b'{"n":%d}' % number)
    assert [entry["msg"]["n"] for entry in entries(path)] == list(range(10_000))
