"""The audit log: entries, the bounded queue, failures and gaps."""

import fcntl
import os
import re
import subprocess
import sys

import pytest
import structlog
import trio
import trio.testing

from acpterm.audit import log as log_module
from acpterm.audit.log import QUEUE_MAX, TEXT_CHARS, AuditLog, LogProgress
from tests.audit.secrets import fake
from tests.audit.support import audit_log, entries, running
from tests.support.polling import poll


async def test_log_writes_a_line_per_entry_with_its_time_and_number(tmp_path):
    async with audit_log(tmp_path) as log:
        log.record("create", terminal="t1", agent="a", args=["x", "y"], rule=None, exit_code=0)
        log.record("exit", terminal="t1", code=None, signal="SIGTERM", ended_by="killed")
    first, second = entries(tmp_path)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first == {
        "event": "create",
        "worker": os.getpid(),
        "seq": 1,
        "terminal": "t1",
        "agent": "a",
        "args": ["x", "y"],
        "exitCode": 0,
    }
    assert (second["seq"], second["signal"], second["endedBy"]) == (2, "SIGTERM", "killed")
    assert "code" not in second


async def test_log_redacts_every_text_of_an_entry(tmp_path):
    secret = "hunter" + "2"
    async with audit_log(tmp_path) as log:
        log.record("create", command="mysql", args=[f"-p{secret}", "db"], directory="/x")
        log.record("create", command=f"export DB_PASSWORD={secret}; make")
        log.record("decision", reason=f"the line has --token {secret}", args=("-u", f"a:{secret}"))
        log.record("create", command="curl", args=("-u", f"a:{secret}"))
    assert secret not in (tmp_path / "audit.jsonl").read_text().replace(f'"a:{secret}"]', "", 1)
    found = entries(tmp_path)
    assert found[0]["args"] == ["-p[redacted]", "db"]
    assert found[1]["command"] == "export DB_PASSWORD=[redacted]; make"
    assert found[3]["args"] == ["-u", "a:[redacted]"]


async def test_log_counts_input_and_records_it_before_the_next_event_of_the_terminal(tmp_path):
    async with audit_log(tmp_path) as log:
        for _ in range(100):
            log.record("input", terminal="t1", by="agent", bytes=2)
            log.record("input", terminal="t1", by="user", bytes=1)
            log.record("input", terminal="t2", by="user", bytes=5)
        log.record("exit", terminal="t1", code=0)
        log.record("exit", terminal="t3", code=0)
    found = [(item["event"], item["terminal"], item.get("bytes")) for item in entries(tmp_path)]
    assert found == [
        ("input", "t1", 200),
        ("input", "t1", 100),
        ("exit", "t1", None),
        ("exit", "t3", None),
        ("input", "t2", 500),
    ]


@pytest.mark.long
async def test_log_records_input_after_a_second_without_another_event(tmp_path):
    async with audit_log(tmp_path) as log:
        log.record("input", terminal="t1", by="agent", bytes=2)
        (entry,) = await poll(lambda: entries(tmp_path) or None)
        assert entry["bytes"] == 2


async def test_log_flushes_at_cancellation(tmp_path):
    async with audit_log(tmp_path) as log:
        for number in range(5000):
            log.record("started", pid=number)
    assert [item["pid"] for item in entries(tmp_path)] == list(range(5000))


async def test_batch_that_is_being_written_at_cancellation_is_written_once(tmp_path):
    lock = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    async with trio.open_nursery() as nursery:
        log = AuditLog(str(tmp_path), file_bytes=1024 * 1024, files=5)
        nursery.start_soon(log.run)
        log.record("create")
        await poll(lambda: log._batch)
        log.record("exit")
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            # The thread waits for the lock; so does the flush.
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert entries(tmp_path) == []
            os.close(lock)
    assert [item["event"] for item in entries(tmp_path)] == ["create", "exit"]


async def test_flush_ends_after_its_timeout_while_the_file_is_locked(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module, "FLUSH_TIMEOUT_S", 0.05)
    lock = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    async with audit_log(tmp_path) as log:
        log.record("create")
        await poll(lambda: log._batch)
    assert entries(tmp_path) == []
    os.close(lock)
    await poll(lambda: entries(tmp_path) or None)


async def test_full_queue_loses_the_newest_entries_and_records_a_gap(tmp_path):
    log = AuditLog(str(tmp_path), file_bytes=64 * 1024 * 1024, files=2)
    for _ in range(QUEUE_MAX + 50):
        log.record("started")
    async with running(log):
        log.record("kill")
        await poll(lambda: any(item["event"] == "gap" for item in entries(tmp_path)))
        log.record("exit")
    found = entries(tmp_path)
    assert [item["seq"] for item in found[:QUEUE_MAX]] == list(range(1, QUEUE_MAX + 1))
    gap, last = found[QUEUE_MAX:]
    assert (gap["event"], gap["lost"], gap["reason"]) == ("gap", 51, "the queue is full")
    assert gap["from"] <= gap["to"] <= gap["time"]
    # The numbers have a hole, whose size is the loss.
    assert (gap["seq"], last["event"], last["seq"]) == (QUEUE_MAX + 52, "exit", QUEUE_MAX + 53)


async def test_queue_is_bounded_in_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module, "QUEUE_BYTES", 100_000)
    log = AuditLog(str(tmp_path), file_bytes=64 * 1024 * 1024, files=2)
    for _ in range(100):
        log.record("create", command="x" * 10_000)
    async with running(log):
        await poll(lambda: any(item["event"] == "gap" for item in entries(tmp_path)))
    assert len(entries(tmp_path)) == 11
    assert entries(tmp_path)[-1]["lost"] == 90


async def test_failing_log_is_reported_once_and_continues_with_a_gap(tmp_path):
    directory = tmp_path / "audit"
    directory.write_text("")  # a file where the directory is to be
    with structlog.testing.capture_logs() as logged:
        async with audit_log(directory) as log:
            for number in range(3):
                log.record("create", pid=number)
                await poll(lambda: logged or None)
            await poll(lambda: log._retry_s > 2 * log_module.RETRY_S)
            assert [item["event"] for item in logged] == ["audit log not written"]
            directory.unlink()
            found = await poll(lambda: (entries(directory)[3:] and entries(directory)) or None)
    assert [item["event"] for item in found] == ["create", "create", "create", "gap"]
    assert [item["seq"] for item in found] == [1, 2, 3, 4]
    assert (found[-1]["lost"], found[-1]["reason"]) == (0, "Not a directory")
    assert [item["event"] for item in logged] == [
        "audit log not written",
        "audit log written again",
    ]
    assert logged[0]["log_level"] == "warning"


async def test_log_that_fails_until_the_end_says_how_much_is_lost(tmp_path):
    directory = tmp_path / "audit"
    directory.write_text("")
    with structlog.testing.capture_logs() as logged:
        async with audit_log(directory) as log:
            log.record("create")
            log.record("exit")
            log.record("create", command=object())
    assert [(item["event"], item.get("lost")) for item in logged] == [
        ("audit log not written", None),
        ("audit entries lost", 3),
    ]


async def test_log_on_a_disk_that_hangs_says_how_much_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module, "FLUSH_TIMEOUT_S", 0)
    with structlog.testing.capture_logs() as logged:
        async with audit_log(tmp_path) as log:
            log.record("create")
            log.record("exit")
    assert [(item["event"], item.get("lost")) for item in logged] == [("audit entries lost", 2)]


async def test_entry_that_cannot_be_encoded_is_lost_without_an_error(tmp_path):
    async with audit_log(tmp_path) as log:
        log.record("create", command=object())
        log.record("create", args=["x", 5])
        log.record("exit")
        await poll(lambda: len(entries(tmp_path)) == 2)
    last, gap = entries(tmp_path)
    assert (last["event"], last["seq"], gap["event"], gap["lost"]) == ("exit", 3, "gap", 2)
    assert gap["reason"] == "an entry cannot be encoded: TypeError"


async def test_text_that_is_not_unicode_is_escaped(tmp_path):
    async with audit_log(tmp_path) as log:
        log.record("create", command="a\udcffb", args=["\ud800"], directory="é\n")
    (entry,) = entries(tmp_path)
    assert (entry["command"], entry["args"], entry["directory"]) == (
        "a\\udcffb",
        ["\\ud800"],
        "é\n",
    )


@pytest.mark.parametrize("offset", [-30, -10, 0, 8192 - 40, 8192 - 10])
async def test_long_text_is_cut_and_no_secret_is_left_in_part(tmp_path, offset):
    token = "gh" + "p_" + fake(36)
    text = "x " * ((TEXT_CHARS + offset) // 2) + token + " y" * 20_000
    async with audit_log(tmp_path) as log:
        log.record("create", command=text)
        log.record("create", command="tool", args=[text, text])
    first, second = entries(tmp_path)
    for found in (first["command"], "".join(second["args"])):
        assert len(found) <= TEXT_CHARS
        assert found.startswith("x x x")
        assert fake(36)[:8] not in found
    assert first["omitted"] == len(text) - TEXT_CHARS
    assert second["omitted"] > len(text)


async def test_secret_is_not_left_in_part_where_redaction_made_the_text_shorter(tmp_path):
    long_token, cut_token = ("gh" + "p_" + fake(length) for length in (20_000, 36))
    filler = TEXT_CHARS + 8192 - 20 - len(long_token)
    text = f"{long_token} {'x ' * (filler // 2)}{cut_token}"
    async with audit_log(tmp_path) as log:
        log.record("create", command=text + " y" * 10_000)
    assert "gh" + "p_" + fake(36)[:4] not in entries(tmp_path)[0]["command"]


LIMITED = """
import os, resource, sys, trio
from pathlib import Path
from tests.audit.support import audit_log, entries
from tests.support.polling import poll

directory, limit, lines = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

async def main():
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    async with audit_log(directory, 64 * 1024 * 1024) as log:
        for number in range(lines):
            log.record("started", pid=number)
        await poll(lambda: log._failing_since is not None)
        data = (directory / "audit.jsonl").read_bytes()
        assert data.endswith(b"\\n") and limit - 200 < len(data) <= limit, len(data)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        await poll(lambda: log._failing_since is None)

trio.run(main)
"""


def run_python(code, *arguments, prefix=()):
    done = subprocess.run(
        [*prefix, sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("limit", [4096, 4100, 4177])
def test_write_that_succeeds_in_part_leaves_whole_lines_and_is_completed(tmp_path, limit):
    """The limit of a file's size lets a write succeed in part, as a full disk does."""
    run_python(LIMITED, tmp_path, limit, 200)
    found = entries(tmp_path)
    assert [item["pid"] for item in found[:-1]] == list(range(200))
    assert (found[-1]["event"], found[-1]["reason"]) == ("gap", "File too large")
    assert [item["seq"] for item in found] == list(range(1, 202))


FULL_DISK = """
import os, sys, trio
from pathlib import Path
from tests.audit.support import audit_log, entries
from tests.support.polling import poll

disk, result = Path(sys.argv[1]), Path(sys.argv[2])
os.system(f"mount -t tmpfs -o size=256k none '{disk}'") == 0 or sys.exit("no tmpfs")

async def main():
    async with audit_log(disk / "audit", 64 * 1024 * 1024) as log:
        log.record("create")
        await poll(lambda: entries(disk / "audit") or None)
        with (disk / "filler").open("wb", buffering=0) as filler:
            try:
                while filler.write(b"x" * 4096): pass
            except OSError: pass
        # More than the queue holds.
        for number in range(12_000):
            log.record("started", pid=number)
            if number % 1000 == 0: await trio.sleep(0)
        await poll(lambda: log._failing_since is not None)
        os.unlink(disk / "filler")
        os.system(f"mount -o remount,size=16m '{disk}'")
        await poll(lambda: log._failing_since is None and not log._queued)
    result.write_bytes((disk / "audit" / "audit.jsonl").read_bytes())

trio.run(main)
"""


@pytest.mark.long
def test_full_disk_is_recorded_as_a_gap(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    if os.geteuid() == 0:
        namespace = ["unshare", "--mount"]
    if subprocess.run([*namespace, "mount", "-t", "tmpfs", "none", disk], check=False).returncode:
        pytest.skip("a tmpfs requires root or user namespaces, and unshare of util-linux")
    run_python(FULL_DISK, disk, tmp_path / "result", prefix=namespace)
    found = entries(tmp_path, "result")
    gap = found.pop()
    assert (gap["event"], gap["reason"]) == ("gap", "No space left on device")
    assert gap["lost"] == 12_001 - len(found) > 0
    assert [item["seq"] for item in found] == list(range(1, len(found) + 1))
    assert os.listdir(disk) == []


async def test_next_worker_reports_what_its_predecessor_has_not_written(tmp_path):
    progress = []

    def log_of(worker):
        log = AuditLog(
            str(tmp_path / "audit"),
            file_bytes=1024 * 1024,
            files=2,
            previous=progress[-1] if progress else None,
            on_progress=progress.append,
        )
        log._worker = worker
        return log

    async with running(first := log_of(1)):
        first.record("create")
    (tmp_path / "audit").rename(tmp_path / "away")
    (tmp_path / "audit").write_text("")  # a file where the directory is to be
    async with running(first):
        for _ in range(3):
            first.record("started")
    (tmp_path / "audit").unlink()
    (tmp_path / "away").rename(tmp_path / "audit")
    (tmp_path / "audit").chmod(0o700)
    async with running(second := log_of(2)):
        second.record("exit")
    async with running(third := log_of(3)):
        third.record("exit")
    found = entries(tmp_path / "audit")
    assert [(one["worker"], one["seq"], one["event"]) for one in found] == [
        (1, 1, "create"),
        (2, 1, "gap"),
        (2, 2, "exit"),
        (3, 1, "exit"),
    ]
    gap = found[1]
    assert gap["lost"] == 3
    assert found[0]["time"] == gap["from"] <= gap["to"] <= gap["time"]


async def test_malformed_entry_of_the_previous_worker_does_not_stop_the_next_one(tmp_path):
    file = tmp_path / "audit" / "audit.jsonl"
    file.parent.mkdir(mode=0o700)
    file.write_text('{"time":"never","event":"exit","worker":1,"seq":2}\n')
    log = AuditLog(
        str(file.parent), file_bytes=1024 * 1024, files=2, previous=LogProgress(1, 3, 1.0)
    )
    async with running(log):
        log.record("exit")
    assert [one["event"] for one in entries(file.parent)] == ["exit", "gap", "exit"]


async def test_gap_that_a_worker_has_not_written_is_reported_by_the_next_one(tmp_path):
    (tmp_path / "audit").write_text("")
    previous = None
    for worker in (1, 2):
        progress = []
        log = AuditLog(
            str(tmp_path / "audit"),
            file_bytes=1024 * 1024,
            files=2,
            previous=previous,
            on_progress=progress.append,
        )
        log._worker = worker
        async with running(log):
            log.record("exit")
        previous = progress[-1]
    (tmp_path / "audit").unlink()
    log = AuditLog(str(tmp_path / "audit"), file_bytes=1024 * 1024, files=2, previous=previous)
    async with running(log):
        log.record("exit")
    gap, _ = entries(tmp_path / "audit")
    assert gap["lost"] == 3  # the entry of each, and the gap of the second
