"""The page's panels in Node: their own tests, and the same words as the commands."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from acpterm.audit.entry import EVENTS, Entry
from acpterm.commands.audit_format import audit_row
from acpterm.recording import asciicast
from acpterm.runtime.sanitize import one_line
from acpterm.web.pages import DIRECTORY
from tests.cli.test_audit import ENTRIES

HERE = Path(__file__).parent / "page"
TIMEOUT_S = 60

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")

MORE_ENTRIES = [
    {"event": "share", "terminal": "term_1", "share": "share-1", "by": "user", "reason": "x"},
    {"event": "unshare", "share": "share-1", "reason": "its terminal was removed"},
    {"event": "token", "agent": "claude", "by": "user"},
    {"event": "untoken", "agent": "claude", "by": "user"},
    {"event": "login", "share": "share-1", "by": "share"},
    {"event": "logout", "by": "user"},
    {"event": "undo", "directory": "/work", "snapshot": "1", "changes": 2, "failures": 1},
    {"event": "input", "terminal": "term_1", "share": "share-1", "by": "share", "bytes": 2},
    {"event": "create", "command": "sh", "args": ["-c", "a | b"], "decision": "ask"},
    {"event": "create", "command": "/bin/bash", "args": ["-l", "-c", "ls"], "by": "user"},
    {"event": "check", "command": "echo", "args": ["it's", "", "a\u202eb", "$x"], "rule": "x"},
    {"event": "decision", "decision": "allow", "by": "page", "command": "ls", "level": "unknown"},
    {"event": "exit", "signal": "SIGKILL", "limit": "memory", "endedBy": "limit"},
    {"event": "exit"},
    {"event": "input", "bytes": 1, "by": "user"},
    {"event": "refused", "reason": "x" * 3000, "command": "y" * 3000},
    {"event": "promote", "connection": "c1", "session": "s" * 40, "agent": ""},
    {"event": "\x1b", "agent": "  \t", "terminal": "no prefix"},
]
HEADER = '{"version": 2, "width": 80, "height": 24, "title": "t"}\n'
HEADER_3 = '{"version": 3, "term": {"cols": 9, "rows": 3}}\n'
CASTS = [
    "",
    HEADER,
    HEADER
    + '[1, "o", "a"]\n[0, "o", "b"]\n\n[true, "o", "x"]\n[2, 3, "x"]\n["1", "o", ""]\nx\n[1]\n',
    HEADER + '# no comment in version 2\n[1e13, "o", "x"]\n[3, "m", "end", 4]',
    "\ufeff" + HEADER + '[1, "i", "\\ud83d\\ude00"]\r\n',
    HEADER_3 + '#c\n[1, "o", "a"]\n[-5, "o", "b"]\n[2, "r", "1x1"]\n',
    '{"version": 3, "term": []}\n',
    '{"version": 2, "width": 80.5, "height": 24}\n',
    '{"version": 4, "width": 80, "height": 24}\n',
    "[2]\n",
    "7\n",
]


@pytest.fixture
def modules(tmp_path):
    """Return a directory with the page's modules and the files of the tests, for Node."""
    shutil.copytree(Path(DIRECTORY) / "js", tmp_path / "js")
    shutil.copytree(HERE, tmp_path, dirs_exist_ok=True)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    return tmp_path


@pytest.fixture
def zone(monkeypatch):
    """Set another time zone than UTC."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def node(modules, *arguments, **more):
    # Node's tests run in their own process each, unless the environment says that one runs already.
    environment = dict(os.environ)
    environment.pop("NODE_TEST_CONTEXT", None)
    return subprocess.run(
        ["node", *arguments],
        cwd=modules,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        **more,
    )


@pytest.mark.long
def test_panels_pass_their_own_tests(modules):
    done = node(modules, "--test", "panels.test.js")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.usefixtures("zone")
def test_page_shows_entries_and_reads_casts_as_the_commands_do(modules):
    entries = [*ENTRIES, *({"time": "2026-01-31T20:00:00.123Z", **one} for one in MORE_ENTRIES)]
    assert set(EVENTS) - {entry["event"] for entry in entries} == {
        "started",
        "attach",
        "detach",
        "release",
    }
    done = node(modules, "compare.js", input=json.dumps({"entries": entries, "casts": CASTS}))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for entry, row in zip(entries, found["rows"], strict=True):
        expected = audit_row(msgspec.convert(entry, Entry))
        assert row == list(expected._replace(what=one_line(expected.what, 2000))), entry
    for text, read in zip(CASTS, found["casts"], strict=True):
        assert read == _cast(text), text


def _cast(text):
    try:
        cast = asciicast.read(line.encode() for line in text.splitlines(keepends=True))
    except asciicast.CastError:
        return None
    events = [list(event) for event in cast.events]
    return [cast.cols, cast.rows, cast.title, events, cast.report.unread]
