"""`acpterm audit`: what it selects and prints, and how it follows the log."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from socket import AF_UNIX
from socket import socket as Socket  # noqa: N812  `socket` is a fixture

import msgspec
import pytest
import trio

from acpterm.audit.entry import Entry
from acpterm.audit.writer import AuditWriter, Batch
from acpterm.commands.audit_format import audit_row
from tests.cli.test_imports import command as run_with_imports
from tests.support.commands import command_environment, run, running
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_here
from tests.support.polling import poll
from tests.support.starting import ACPTERM

TERMINAL = "term_0123456789abcdef0123456789abcdef"


def time_ago(minutes):
    at = datetime.now(UTC) - timedelta(minutes=minutes)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def entry(event, **members):
    return {"time": time_ago(0), "event": event, "worker": 1, "seq": 1, **members}


# From the oldest to the newest. The fixture `socket` sets their times.
ENTRIES = [
    entry(
        "create",
        terminal=TERMINAL,
        agent="claude-code",
        session="s-1",
        command="sh",
        args=["-c", "rm -r build"],
        directory="/project",
        provider="bubblewrap",
        profile="guarded",
        level="dangerous",
        rule="rm",
    ),
    entry(
        "decision",
        terminal=TERMINAL,
        agent="claude-code",
        session="s-1",
        decision="deny",
        by="profile",
        reason="no one is there to ask",
    ),
    entry("input", terminal=TERMINAL, agent="codex", session="s-22", by="agent", bytes=12),
    entry("exit", terminal=TERMINAL, agent="codex", session="s-22", code=3, endedBy="exited"),
    {
        **entry("gap", lost=7, reason="No space left on device"),
        "from": "2026-01-31T10:00:00.000Z",
        "to": "2026-01-31T11:00:00.000Z",
    },
    entry("kill", terminal=TERMINAL, agent="x\x1b[2J", signal="SIGTERM", reason="a\nb\u202e"),
    entry("later", agent="new", something="else"),
]


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "state" / "acpterm" / "audit"


@pytest.fixture
def socket(tmp_path, directory, monkeypatch):
    """Write `ENTRIES` to the audit log; return a path of a socket at which no daemon runs.

    The entries get new times, some minutes or hours ago: this file may have been imported long ago.
    """
    for item, minutes in zip(ENTRIES, (180, 120, 30, 20, 10, 5, 1), strict=True):
        monkeypatch.setitem(item, "time", time_ago(minutes))
    append(directory, *ENTRIES)
    return str(tmp_path / "agent.sock")


def append(directory, *added, file_bytes=10**6):
    lines = [json.dumps(item).encode() + b"\n" for item in added]
    AuditWriter(str(directory), file_bytes=file_bytes, files=50).append(Batch(lines))


def events(text):
    return [json.loads(line)["event"] for line in text.splitlines()]


# Without the times.
PRINTED = r"""
create    claude-code       s-1           01234567  rm -r build  (dangerous, rule rm, guarded, \
bubblewrap)  in /project
decision  claude-code       s-1           01234567  deny by profile  no one is there to ask
input     codex             s-22          01234567  12 bytes typed by agent
exit      codex             s-22          01234567  ended with 3  (exited)
gap       -                 -             -         7 entries lost from 2026-01-31 10:00:00 to \
2026-01-31 11:00:00: No space left on device
kill      x\x1b[2J          -             01234567  SIGTERM  a\nb\u202e
later     new               -             -
"""


@pytest.mark.parametrize(
    ("entry", "details", "colour"),
    [
        ({"event": "input", "bytes": 1, "by": "user"}, "1 byte typed by user", None),
        (
            {"event": "input", "bytes": 0, "by": "share", "share": "s1"},
            "0 bytes typed by share s1",
            None,
        ),
        ({"event": "exit", "code": 0, "endedBy": "exited"}, "ended with 0  (exited)", "cyan"),
        (
            {"event": "exit", "signal": "SIGKILL", "endedBy": "limit", "limit": "memory"},
            "ended by SIGKILL  (limit, memory)",
            "cyan",
        ),
        ({"event": "exit", "endedBy": "lost"}, "ended  (lost)", "cyan"),
        ({"event": "decision", "decision": "allow", "command": "{by}"}, "allow  {by}", "green"),
        ({"event": "decision", "decision": "deny", "by": "user"}, "deny by user", "red"),
        ({"event": "kill", "background": ["a (1)", "b (2)"]}, "ended a (1), b (2)", "red"),
        ({"event": "started", "pid": 7, "command": "x  (y | z)"}, "pid 7  x  (y | z)", None),
        ({"event": "created", "background": [], "reason": ""}, "", None),
    ],
)
def test_audit_row_has_the_details_and_the_colour_of_its_event(entry, details, colour):
    row = audit_row(msgspec.convert({"time": "", **entry}, Entry))
    assert (row.what, row.colour) == (details, colour)


async def test_audit_prints_a_line_per_entry(socket):
    done = await run(socket, "audit", TZ="UTC")
    assert (done.status, done.err) == (0, "")
    times = [datetime.fromisoformat(item["time"]) for item in ENTRIES]
    lines = PRINTED.replace("\\\n", "").strip().splitlines()
    assert done.out.splitlines() == [
        f"{at:%Y-%m-%d %H:%M:%S}  {line}" for at, line in zip(times, lines, strict=True)
    ]


async def test_audit_cuts_nothing_in_a_pipe(directory, socket):
    words, path = " ".join(map(str, range(2000))), "/a" * 300
    append(directory, entry("create", command="echo", args=[words], directory=path))
    append(directory, entry("decision", decision="deny", reason="because " * 99 + "end"))
    done = await run(socket, "audit")
    long, last = done.out.splitlines()[-2:]
    assert words in long
    assert long.endswith(f"in {path}")
    assert last.endswith("because end")


@pytest.mark.parametrize(("columns", "shows"), [(80, "deny by profile"), (160, "no one is there")])
async def test_audit_uses_the_width_of_the_window(socket, columns, shows):
    async with agent_here() as window:
        words = [*ACPTERM[1:], "audit", "--event", "decision", "--agent", "claude"]
        environment = {**command_environment(socket), "TERM": "xterm", "NO_COLOR": "1"}
        env = [{"name": name, "value": value} for name, value in environment.items()]
        own = {"cols": columns, "rows": 30}
        terminal = await window.create(ACPTERM[0], args=words, env=env, own=own)
        assert (await window.wait(terminal))["exitCode"] == 0
        line = (await window.output(terminal))["output"].splitlines()[0]
    assert shows in line
    assert len(line) <= columns


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["create", "decision", "input", "exit", "gap", "kill", "later"]),
        (("--agent", "cl"), ["create", "decision", "gap"]),
        (("--event", "exit"), ["exit", "gap"]),
        (("--agent", "codex"), ["input", "exit", "gap"]),
        (("--session", "s-"), ["create", "decision", "input", "exit", "gap"]),
        (("--session", "s-2"), ["input", "exit", "gap"]),
        (("--session", "s-2", "--agent", "cl"), ["gap"]),
        (("--since", "25m"), ["exit", "gap", "kill", "later"]),
        (("--since", "150m"), ["decision", "input", "exit", "gap", "kill", "later"]),
        (("--since", "1d"), ["create", "decision", "input", "exit", "gap", "kill", "later"]),
        (("--since", "EXIT"), ["exit", "gap", "kill", "later"]),
        (("--since", "EXIT+00:00"), ["exit", "gap", "kill", "later"]),
        (("--since", "2020-01-31", "--agent", "new"), ["gap", "later"]),
        (("--since", "2999-01-31"), []),
    ],
)
async def test_audit_selects_by_agent_session_and_time(socket, options, expected):
    at = ENTRIES[3]["time"]
    times = {"EXIT": at, "EXIT+00:00": at.replace("Z", "+00:00")}
    options = [times.get(option, option) for option in options]
    done = await run(socket, "audit", "--json", *options)
    assert (done.status, done.err) == (0, "")
    assert events(done.out) == expected


async def test_audit_names_the_events_when_there_is_no_such_event(socket):
    done = await run(socket, "audit", "--event", "exits")
    assert done.status == 2
    assert "'exits' is not one of 'create', 'check', 'decision'," in done.err


async def test_audit_prints_json_as_it_is_in_the_file(socket, directory):
    done = await run(socket, "audit", "--json")
    assert [json.loads(line) for line in done.out.splitlines()] == ENTRIES
    assert done.out == (directory / "audit.jsonl").read_text()


@pytest.mark.parametrize("json_option", [(), ("--json",)])
async def test_audit_escapes_characters_that_control_a_terminal(tmp_path, directory, json_option):
    line = '{"time":"2026-01-01T00:00:00.000Z","event":"create","command":"a\u202eb\u009bc"}\n'
    directory.mkdir(parents=True)
    (directory / "audit.jsonl").write_text(line)
    done = await run(str(tmp_path / "agent.sock"), "audit", *json_option)
    assert "\u202e" not in done.out
    assert "\u009b" not in done.out
    assert "\\u202eb" in done.out


async def test_audit_without_a_log_prints_nothing(tmp_path):
    assert await run(str(tmp_path / "agent.sock"), "audit") == (0, "", "")
    assert not (tmp_path / "state").exists()


async def test_audit_counts_lines_that_are_no_entries(socket, directory):
    with (directory / "audit.jsonl").open("a") as file:
        file.write('{"time":"20\n{}\n')
    done = await run(socket, "audit", "--json")
    assert events(done.out) == [item["event"] for item in ENTRIES]
    assert done.err == "2 lines are incomplete or no entry, and left out\n"


async def test_audit_reads_the_directory_of_the_settings(tmp_path, socket):
    other = tmp_path / "other"
    append(other, entry("exit"))
    done = await run(socket, "audit", "--json", ACPTERM_AUDIT_DIR=str(other))
    assert events(done.out) == ["exit"]


async def test_audit_with_a_directory_in_the_settings_asks_no_daemon(tmp_path):
    append(tmp_path / "other", entry("exit"))
    with Socket(AF_UNIX) as listener:
        listener.bind(str(tmp_path / "user.sock"))
        listener.listen()
        listener.setblocking(False)
        env = {"ACPTERM_AUDIT_DIR": str(tmp_path / "other")}
        done = await run(str(tmp_path / "agent.sock"), "audit", "--json", **env)
        assert events(done.out) == ["exit"]
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize("text", ["", "x", "5", "25:00", "2026-13-01"])
async def test_audit_refuses_text_that_is_no_time(tmp_path, text):
    done = await run(str(tmp_path / "agent.sock"), "audit", "--since", text)
    assert (done.status, done.out) == (2, "")
    assert f"'{text}' is no time: give 10m, 2h, 1d" in done.err


async def test_audit_says_that_a_file_is_no_directory(tmp_path, directory):
    directory.parent.mkdir(parents=True)
    directory.write_text("")
    done = await run(str(tmp_path / "agent.sock"), "audit")
    assert (done.status, done.out) == (1, "")
    assert done.err == f"acpterm: the audit log in {directory} cannot be read: Not a directory\n"


@pytest.mark.long
async def test_audit_follows_the_log_across_rotations(tmp_path, socket, directory):
    async with running(tmp_path, socket, "audit", "-f", "--json", "--since", "6m") as audit:
        await poll(lambda: len(audit.lines) == 2)
        for number in range(30):
            append(directory, entry("started", pid=number), file_bytes=1000)
            if number % 10 == 0:
                await poll(lambda number=number: len(audit.lines) == 3 + number)
        await poll(lambda: len(audit.lines) == 32)
        assert len(os.listdir(directory)) > 3
        found = [json.loads(line) for line in audit.lines]
        assert [item.get("pid") for item in found[2:]] == list(range(30))
        audit.interrupt()
        assert await audit.wait() == 130
    assert audit.err == ""


@pytest.mark.long
async def test_audit_follows_a_log_that_does_not_exist_yet(tmp_path, directory):
    async with running(tmp_path, str(tmp_path / "agent.sock"), "audit", "-f", "--json") as audit:
        append(directory, entry("create"))
        await poll(lambda: events(audit.out) == ["create"])


@pytest.mark.long
async def test_following_audit_ends_when_the_reader_of_stdout_does(tmp_path, socket):
    reader, writer = os.pipe()
    async with running(tmp_path, socket, "audit", "-f", stdout=writer) as audit:
        os.close(writer)
        assert b"create" in os.read(reader, 4096)
        os.close(reader)
        assert await audit.wait() == 0
    assert audit.err == ""


@pytest.mark.long
def test_audit_into_a_reader_that_stops_prints_no_error(tmp_path, socket, directory):
    append(directory, *(entry("started", pid=number) for number in range(5000)))
    line = f'"{sys.executable}" -m acpterm audit --json | head -n 1; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", line],
        env=command_environment(socket),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[1:] == ["0"]


async def test_audit_reports_a_full_disk_of_stdout(tmp_path, socket):
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        async with running(tmp_path, socket, "audit", stdout=full) as audit:
            assert await audit.wait() == 1
    finally:
        os.close(full)
    assert audit.err == "acpterm: stdout: No space left on device\n"


def test_audit_imports_no_slow_module(socket):
    done = run_with_imports(socket, "audit", "--json", "--since", "1d")
    assert (done.returncode, done.stderr) == (0, "imported:")


async def test_audit_needs_no_answer_of_a_daemon_that_hangs(tmp_path):
    async with daemon(tmp_path) as (process, path):
        os.kill(process.pid, signal.SIGSTOP)
        try:
            with trio.fail_after(DEADLINE_S):
                done = await run(path, "audit")
        finally:
            os.kill(process.pid, signal.SIGCONT)
    assert (done.status, done.err) == (0, "")
