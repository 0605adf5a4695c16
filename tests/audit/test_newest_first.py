"""Pages of the audit log, the newest entry first: places, rotation, bounds and selection."""

import json
import os
from datetime import UTC, datetime, timedelta

import pytest

from acpterm.audit import newest_first
from acpterm.audit.entry import time_text
from acpterm.audit.newest_first import LogPlace, read_page
from acpterm.audit.selection import Selection
from acpterm.audit.writer import AuditWriter, Batch

START = datetime(2026, 1, 1, tzinfo=UTC)
ANY = Selection()


def line(number, **members):
    at = time_text((START + timedelta(minutes=number)).timestamp())
    return json.dumps({"time": at, "event": "started", "pid": number, **members}).encode() + b"\n"


def write(directory, *lines, file_bytes=1 << 20, files=5):
    AuditWriter(str(directory), file_bytes=file_bytes, files=files).append(Batch(list(lines)))


def pids(page):
    return [json.loads(text)["pid"] for text in page.entries]


def page_of(directory, selection=ANY, limit=100, **more):
    return read_page(str(directory), selection, limit=limit, **more)


def test_missing_and_empty_logs_have_no_entries(tmp_path):
    assert page_of(tmp_path / "none") == ([], None, None)
    (tmp_path / "audit.jsonl").touch()
    assert page_of(tmp_path) == ([], None, None)


def test_pages_go_through_all_files_from_the_newest_entry_to_the_oldest(tmp_path):
    for number in range(10):
        write(tmp_path, line(number), file_bytes=3 * len(line(0)))
    assert len(os.listdir(tmp_path)) > 2
    found, before = [], None
    while True:
        page = page_of(tmp_path, limit=3, before=before)
        found += pids(page)
        if page.following is None:
            break
        before = LogPlace.parse(str(page.following))
    assert found == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


def test_page_goes_on_at_its_place_although_files_were_rotated_and_written(tmp_path):
    write(tmp_path, *map(line, range(6)))
    page = page_of(tmp_path, limit=2)
    assert pids(page) == [5, 4]
    write(tmp_path, *map(line, range(6, 9)), file_bytes=1)
    assert pids(page_of(tmp_path, before=page.following)) == [3, 2, 1, 0]
    newer = page_of(tmp_path, after=page.newest)
    assert pids(newer) == [8, 7, 6]
    assert newer.following is None


def test_new_entries_that_are_not_selected_are_passed_only_once(tmp_path):
    write(tmp_path, line(1, agent="a"))
    mine = Selection(agent="a")
    page = page_of(tmp_path, mine)
    write(tmp_path, line(2, agent="b"))
    second = page_of(tmp_path, mine, after=page.newest)
    assert second.entries == []
    assert second.newest not in (None, page.newest)
    third = page_of(tmp_path, mine, after=second.newest)
    assert third == ([], second.newest, None)


def test_place_in_a_file_that_was_removed_has_nothing_before_it(tmp_path):
    write(tmp_path, line(1), line(2))
    page = page_of(tmp_path, limit=1)
    status = os.stat(tmp_path / "audit.jsonl")
    os.unlink(tmp_path / "audit.jsonl")
    write(tmp_path, line(3), line(4))
    # Most file systems use the inode again.
    place = page.following._replace(inode=os.stat(tmp_path / "audit.jsonl").st_ino)
    assert place.offset < status.st_size
    assert page_of(tmp_path, before=place).entries == []


def test_incomplete_and_invalid_lines_are_left_out(tmp_path):
    invalid = [b"\n", b"[]\n", b"\xff\n", line(7, event=7), line(7)[:-2] + b', "more": "\xff"}\n']
    (tmp_path / "audit.jsonl").write_bytes(
        line(1) + b"".join(invalid) + line(2) + line(3)[:-1]  # being written
    )
    assert pids(page_of(tmp_path)) == [2, 1]


def test_lines_longer_than_a_chunk_are_read_and_those_over_the_limit_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(newest_first, "CHUNK_BYTES", 64)
    monkeypatch.setattr(newest_first, "ENTRY_BYTES_MAX", 2000)
    long = line(2, reason="x" * 1000)
    (tmp_path / "audit.jsonl").write_bytes(
        line(1) + long + line(3) + line(4, reason="x" * 4000) + line(5) + b"x" * 5000
    )
    page = page_of(tmp_path, limit=3)
    assert pids(page) == [5, 3, 2]
    assert page.entries[2] + b"\n" == long
    assert pids(page_of(tmp_path, before=page.following)) == [1]


def test_page_ends_after_a_number_of_bytes_and_names_where_to_go_on(tmp_path, monkeypatch):
    write(tmp_path, *(line(number, agent="b") for number in range(100)))
    monkeypatch.setattr(newest_first, "SCANNED_BYTES", 10 * len(line(10, agent="b")))
    page = page_of(tmp_path, Selection(agent="a"))
    assert page.entries == []
    assert page.following is not None
    monkeypatch.setattr(newest_first, "PAGE_BYTES", 3 * len(line(10, agent="b")))
    page = page_of(tmp_path)
    assert pids(page) == [99, 98, 97, 96]
    assert pids(page_of(tmp_path, before=page.following))[0] == 95


def test_entries_are_selected_by_their_members(tmp_path):
    term = "term_0123456789abcdef"
    write(
        tmp_path,
        line(1, agent="claude-code", session="s-1", terminal=term),
        line(2, agent="codex", session="s-2", event="decision", decision="deny"),
        line(3, event="gap", lost=3),
        line(4, agent="codex", session="s-22"),
    )

    def selected(**values):
        return pids(page_of(tmp_path, Selection(**values)))

    assert selected(agent="claude") == [3, 1]
    assert selected(session="s-2") == [4, 3, 2]
    assert selected(terminal="term_01") == selected(terminal="0123") == [3, 1]
    assert selected(event="decision") == selected(decision="deny") == [3, 2]
    assert selected(event="started", agent="codex") == [4, 3]
    since, until = (time_text((START + timedelta(minutes=one)).timestamp()) for one in (2, 3))
    assert selected(since=since, until=until) == [3, 2]


def test_reading_stops_long_before_the_time_that_is_asked_for(tmp_path, monkeypatch):
    write(tmp_path, *map(line, range(0, 100, 2)))
    since = time_text((START + timedelta(minutes=90)).timestamp())
    page = page_of(tmp_path, Selection(since=since))
    assert pids(page) == [98, 96, 94, 92, 90]
    assert page.following is None
    # Entries that were written late are found: up to ten minutes.
    write(tmp_path, line(85), line(91))
    assert pids(page_of(tmp_path, Selection(since=since))) == [91, 98, 96, 94, 92, 90]


@pytest.mark.parametrize(
    "text", ["", "1.2.3", "1.2.3.4.5", "1.-2.3.4", "x.1.1.1", "1.1.1." + "f" * 99]
)
def test_text_that_is_no_place_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011  also from int
        LogPlace.parse(text)
