"""The reader of the audit log: rotated files, incomplete lines, and following."""

import json
import os
import time
import tracemalloc
from contextlib import closing

import pytest

from acpterm.audit import log_files
from acpterm.audit.reader import AuditReader
from acpterm.audit.writer import AuditWriter, Batch


def line(number, **members):
    entry = {"time": "2026-01-01T00:00:00.000Z", "event": "started", "pid": number, **members}
    return json.dumps(entry).encode() + b"\n"


def pids(reader):
    return [found.entry.pid for found in reader.read()]


@pytest.fixture
def reader(tmp_path):
    with closing(AuditReader(str(tmp_path))) as reader:
        yield reader


def test_missing_directory_has_no_entries(tmp_path):
    with closing(AuditReader(str(tmp_path / "none"))) as reader:
        assert pids(reader) == []


def test_files_are_read_from_the_oldest_on(tmp_path, reader):
    for number, name in enumerate(
        ["audit.jsonl.10", "audit.jsonl.2", "audit.jsonl.1", "audit.jsonl"]
    ):
        (tmp_path / name).write_bytes(line(number))
    (tmp_path / "audit.jsonl.x").write_bytes(line(9))
    (tmp_path / "audit.jsonl.bak").write_bytes(line(9))
    assert pids(reader) == [0, 1, 2, 3]


def test_lines_that_are_no_entries_are_skipped_and_counted(tmp_path, reader):
    torn = line(0)[:20] + b"\n"
    invalid = [torn, b"\n", b"[]\n", b"\xff\n", line("x"), b'{"event":"x"}\n', b"\0" * 50 + b"\n"]
    (tmp_path / "audit.jsonl").write_bytes(
        line(1) + b"".join(invalid) + line(2, event="later", more={"a": [1]}) + line(3)[:-5]
    )
    assert pids(reader) == [1, 2]
    assert reader.skipped == 6


def test_incomplete_last_line_is_read_when_it_is_complete(tmp_path, reader):
    path = tmp_path / "audit.jsonl"
    path.write_bytes(line(1) + line(2)[:10])
    assert pids(reader) == [1]
    assert pids(reader) == []
    path.write_bytes(line(1))
    path.write_bytes(line(1) + line(3) + line(4))
    assert pids(reader) == [3, 4]
    assert reader.skipped == 0


def test_reader_continues_after_an_emptied_file(tmp_path, reader):
    (tmp_path / "audit.jsonl").write_bytes(line(1) + line(2))
    assert pids(reader) == [1, 2]
    (tmp_path / "audit.jsonl").write_bytes(line(3))
    assert pids(reader) == [3]


def test_reader_continues_across_rotations(tmp_path, reader):
    file = AuditWriter(str(tmp_path), file_bytes=3 * len(line(10)), files=50)
    found = []
    for number in range(10, 90):
        file.append(Batch([line(number)]))
        if number % 7 == 0:
            found += pids(reader)
    assert len(os.listdir(tmp_path)) > 20
    assert found + pids(reader) == list(range(10, 90))


def test_reader_sees_each_entry_once_while_another_thread_of_writes_rotates(tmp_path, reader):
    """A rotation happens between every two entries that are read."""
    file = AuditWriter(str(tmp_path), file_bytes=len(line(10)), files=200)
    file.append(Batch([line(10)]))
    file.append(Batch([line(11)]))
    found = []
    for entry in reader.read():
        found.append(entry.entry.pid)
        if len(found) < 60:
            file.append(Batch([line(11 + len(found))]))
    assert found == list(range(10, 10 + len(found)))
    assert len(found) >= 60


def test_line_that_is_appended_just_before_a_rotation_is_read(tmp_path, reader, monkeypatch):
    file = AuditWriter(str(tmp_path), file_bytes=2 * len(line(10)), files=5)
    file.append(Batch([line(10)]))
    status_of = log_files.status_of

    def append_and_rotate(directory, name):
        monkeypatch.undo()
        file.append(Batch([line(11)]))
        file.append(Batch([line(12)]))
        return status_of(directory, name)

    assert next(reader.read()).entry.pid == 10
    monkeypatch.setattr("acpterm.audit.reader.status_of", append_and_rotate)
    assert pids(reader) == [11, 12]


def test_reader_continues_with_the_oldest_file_if_its_own_was_removed(tmp_path, reader):
    file = AuditWriter(str(tmp_path), file_bytes=len(line(10)), files=3)
    file.append(Batch([line(10)]))
    assert pids(reader) == [10]
    for number in range(11, 20):
        file.append(Batch([line(number)]))
    assert pids(reader) == [17, 18, 19]


@pytest.mark.long
def test_line_that_is_too_long_is_skipped(tmp_path, reader):
    with (tmp_path / "audit.jsonl").open("wb") as file:
        file.write(line(1))
        for _ in range(9):
            file.write(b"x" * 1024 * 1024)
        file.write(b"\n" + line(2, command="y" * 1024 * 1024) + line(3))
    assert pids(reader) == [1, 2, 3]
    assert reader.skipped == 1


def test_rotated_files_from_before_a_time_are_not_read(tmp_path):
    now = time.time()
    for number in range(3):
        name = f"audit.jsonl.{number}" if number else "audit.jsonl"
        (tmp_path / name).write_bytes(line(number))
        os.utime(tmp_path / name, (now, now - 3600 * number))
    with closing(AuditReader(str(tmp_path), now - 1800)) as reader:
        assert pids(reader) == [0]
    with closing(AuditReader(str(tmp_path), now - 2 * 3600)) as reader:
        assert pids(reader) == [2, 1, 0]


def test_link_is_not_read(tmp_path, reader):
    (tmp_path / "other").write_bytes(line(1))
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "other")
    os.mkfifo(tmp_path / "audit.jsonl.1")
    assert pids(reader) == []


@pytest.mark.long
def test_memory_does_not_depend_on_the_size_of_the_files(tmp_path, reader):
    many = b"".join(line(number, command="x" * 300) for number in range(1000))
    with (tmp_path / "audit.jsonl").open("wb") as file:
        for _ in range(100):
            file.write(many)
    tracemalloc.start()
    try:
        assert sum(1 for _ in reader.read()) == 100_000
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()
