"""The file of the audit log: modes, owners, rotation, and several writers."""

import fcntl
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import platformdirs
import pytest

from acpterm.audit import writer as writer_module
from acpterm.audit.writer import AuditWriter, Batch
from acpterm.config import Settings, audit_dir


def audit_file(directory, file_bytes=1000, files=3):
    return AuditWriter(str(directory), file_bytes=file_bytes, files=files)


def append(file, *lines):
    batch = Batch([f"{line}\n".encode() for line in lines])
    file.append(batch)
    assert batch.written == len(batch.data)


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def test_directory_and_file_are_private_to_the_user(tmp_path):
    directory = tmp_path / "state" / "audit"
    append(audit_file(directory), "a")
    assert mode(directory.parent) == 0o700
    assert (mode(directory), mode(directory / "audit.jsonl")) == (0o700, 0o600)
    directory.chmod(0o755)
    (directory / "audit.jsonl").chmod(0o644)
    append(audit_file(directory), "b")
    assert (mode(directory), mode(directory / "audit.jsonl")) == (0o700, 0o600)
    assert (directory / "audit.jsonl").read_text() == "a\nb\n"


@pytest.mark.parametrize("home", ["", "/state", "relative"])
def test_default_directory_is_in_the_state_directory_of_the_user(monkeypatch, home):
    monkeypatch.setenv("XDG_STATE_HOME", home)
    if home == "relative":  # not valid, by the XDG Base Directory Specification
        monkeypatch.delenv("XDG_STATE_HOME")
        expected = platformdirs.user_state_dir("acpterm")
        monkeypatch.setenv("XDG_STATE_HOME", home)
    else:
        expected = platformdirs.user_state_dir("acpterm")
    assert audit_dir(Settings()) == f"{expected}/audit"


def test_file_is_rotated_by_size_and_the_oldest_is_removed(tmp_path):
    file = audit_file(tmp_path, file_bytes=1000, files=3)
    for number in range(10):
        append(file, f"{number} " + "x" * 397)
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert {name: [line[0] for line in text.splitlines()] for name, text in found.items()} == {
        "audit.jsonl": ["8", "9"],
        "audit.jsonl.1": ["6", "7"],
        "audit.jsonl.2": ["4", "5"],
    }
    assert all(len(text) <= 1000 for text in found.values())


def test_fewer_files_are_kept_after_the_setting_was_reduced(tmp_path):
    for name in ("audit.jsonl.7", "audit.jsonl.2", "audit.jsonl.1", "audit.jsonl.x"):
        (tmp_path / name).write_text(name)
    append(audit_file(tmp_path, files=2), "a" * 900)
    append(audit_file(tmp_path, files=2), "b" * 900)
    assert sorted(os.listdir(tmp_path)) == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.x"]
    assert (tmp_path / "audit.jsonl.1").read_text() == "a" * 900 + "\n"


def test_single_file_is_kept_without_older_ones(tmp_path):
    for letter in "abc":
        append(audit_file(tmp_path, files=1), letter * 900)
    assert os.listdir(tmp_path) == ["audit.jsonl"]
    assert (tmp_path / "audit.jsonl").read_text() == "c" * 900 + "\n"


def test_incomplete_line_of_a_process_that_died_is_ended(tmp_path):
    (tmp_path / "audit.jsonl").write_text('{"event":"cre')
    append(audit_file(tmp_path), "b")
    assert (tmp_path / "audit.jsonl").read_text() == '{"event":"cre\nb\n'


def test_directory_that_was_removed_is_created_again(tmp_path):
    directory = tmp_path / "audit"
    file = audit_file(directory)
    append(file, "a")
    (directory / "audit.jsonl").unlink()
    directory.rmdir()
    append(file, "b")
    assert (directory / "audit.jsonl").read_text() == "b\n"
    assert mode(directory) == 0o700


def test_link_in_place_of_the_file_is_refused(tmp_path):
    target = tmp_path / "target"
    target.write_text("x")
    directory = tmp_path / "audit"
    directory.mkdir()
    (directory / "audit.jsonl").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        append(audit_file(directory), "a")
    assert target.read_text() == "x"


def test_link_in_place_of_the_directory_is_refused(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "audit").symlink_to(target)
    with pytest.raises(NotADirectoryError):
        append(audit_file(tmp_path / "audit"), "a")
    assert os.listdir(target) == []


def test_fifo_in_place_of_the_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "audit.jsonl")
    with pytest.raises(OSError, match="it is no file of this user"):
        append(audit_file(tmp_path), "a")


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's files require root")
@pytest.mark.parametrize("name", ["", "audit.jsonl"])
def test_directory_or_file_of_another_user_is_refused(tmp_path, name):
    (tmp_path / "audit.jsonl").write_text("x")
    os.chown(tmp_path / name, 12345, 12345)
    with pytest.raises(PermissionError, match="uid 12345"):
        append(audit_file(tmp_path), "a")
    assert (tmp_path / "audit.jsonl").read_text() == "x"


def test_lock_of_a_process_that_does_not_continue_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module, "_LOCK_TIMEOUT_S", 0.02)
    directory = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    with pytest.raises(TimeoutError, match="another process holds the lock"):
        append(audit_file(tmp_path), "a")
    os.close(directory)
    append(audit_file(tmp_path), "a")


def test_batch_is_appended_once_when_two_threads_append_it(tmp_path):
    file = audit_file(tmp_path, file_bytes=10**9)
    batch = Batch([b"x" * 1_000_000 + b"\n"])
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(file.append, [batch] * 8))
    assert (tmp_path / "audit.jsonl").stat().st_size == 1_000_001


WRITER = """
import sys
from acpterm.audit import writer
from acpterm.audit.writer import AuditWriter, Batch
writer._LOCK_TIMEOUT_S = 50
directory, name, count = sys.argv[1:]
file = AuditWriter(directory, file_bytes=20_000, files=100_000)
for start in range(0, int(count), 5):
    lines = [f"{name} {n} {'x' * (n % 90)}\\n" for n in range(start, start + 5)]
    file.append(Batch([line.encode() for line in lines]))
"""


@pytest.mark.long
def test_several_processes_lose_and_tear_no_line_while_they_rotate(tmp_path):
    names, count = ["a", "b", "c", "d"], 3000
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, tmp_path, name, str(count)])
        for name in names
    ]
    assert [writer.wait(50) for writer in writers] == [0] * len(names)
    files = sorted(tmp_path.iterdir(), key=lambda path: -int(path.suffix[1:].replace("jsonl", "0")))
    assert len(files) > 20
    assert all(path.stat().st_size <= 20_000 for path in files)
    lines = "".join(path.read_text() for path in files).splitlines()
    assert all(
        line == f"{line[0]} {n} {'x' * (n % 90)}" for line in lines for n in [int(line.split()[1])]
    )
    for name in names:
        numbers = [int(line.split()[1]) for line in lines if line[0] == name]
        assert numbers == list(range(count))
