"""The user's methods that list snapshots, show what a restore changes, and restore."""

import json
import threading

import pytest

from acpterm.config import Settings, undo_dir
from acpterm.host.open_host import open_host
from acpterm.host.user import undo_methods
from acpterm.host.user.methods import USER_METHODS
from acpterm.host.user.shared_terminal import share_methods_table
from acpterm.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RpcError,
)
from acpterm.runtime.exec_context import current
from acpterm.undo.scan import FILES_ONLY
from acpterm.undo.store import Store
from tests.support.agent import agent_of
from tests.support.user import user_of


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.py").write_text("one\n")
    return tmp_path / "project"


async def refused(peer, method, **params):
    with pytest.raises(RpcError) as raised:
        await peer.request(method, params)
    return raised.value


def keep(project):
    store = Store(undo_dir(), str(project))
    with store.locked():
        store.keep("before an undo")


def undos(tmp_path):
    """Return the entries of the audit log about undos."""
    lines = map(json.loads, (tmp_path / "audit" / "audit.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == "undo"]


async def test_a_directory_is_shown_and_then_restored(project, tmp_path):
    settings = Settings(audit_dir=str(tmp_path / "audit"))
    async with open_host(settings, current()) as host, user_of(host) as user:
        where = {"cwd": str(project)}
        none = await refused(user, "undo/plan", **where)
        assert (none.code, "no earlier snapshot" in none.message) == (INVALID_REQUEST, True)
        keep(project)
        (project / "a.py").write_text("two\n")
        running = await user.create("sleep 1000", cwd=str(project))
        found = await user.request("undo/plan", where)
        assert found["changes"] == [{"path": "a.py", "what": "change"}]
        assert "a.py | 2 +-" in found["diffstat"]
        assert found["running"] == [running]
        assert (project / "a.py").read_text() == "two\n"

        (project / "a.py").write_text("three\n")
        chosen = {name: found[name] for name in ("directory", "to", "digest")}
        error = await refused(user, "undo/restore", **chosen)
        assert "has changed meanwhile" in error.message
        assert (project / "a.py").read_text() == "three\n"

        (project / "a.py").write_text("two\n")
        assert await user.request("undo/restore", chosen) == {"failures": []}
        assert (project / "a.py").read_text() == "one\n"
        listed = await user.request("undo/list", where)
        assert listed["directory"] == str(project)
        assert {one["why"] for one in listed["snapshots"]} == {"before an undo"}
    (entry,) = undos(tmp_path)
    assert (entry["by"], entry["directory"]) == ("user", str(project))
    assert (entry["snapshot"], entry["changes"], entry["failures"]) == (found["to"], 1, 0)


async def test_a_terminals_directory_is_that_from_before_its_command(project):
    async with open_host(Settings(), current()) as host, user_of(host) as user:
        keep(project)
        terminal = await user.create("rm a.py", cwd=str(project))
        await user.request("terminal/wait", {"terminalId": terminal})
        next(iter(host.terminals.registry)).record.unkept = ""
        found = await user.request("undo/plan", {"terminalId": terminal})
        assert found["changes"] == [{"path": "a.py", "what": "restore"}]
        error = await refused(user, "undo/plan", terminalId=terminal, cwd="/")
        assert error.code == INVALID_PARAMS


@pytest.mark.parametrize(
    ("unkept", "is_kept"), [("", True), (FILES_ONLY, True), ("no git", False), (None, False)]
)
async def test_a_terminal_says_whether_its_directory_comes_back(project, unkept, is_kept):
    async with open_host(Settings(), current()) as host, user_of(host) as user:
        keep(project)
        terminal = await user.create("rm a.py", cwd=str(project))
        await user.request("terminal/wait", {"terminalId": terminal})
        next(iter(host.terminals.registry)).record.unkept = unkept
        info = await user.request("terminal/get", {"terminalId": terminal})
        assert info.get("isKept") == (is_kept or None)
        assert info.get("unkept", "") == (unkept or "")
        if is_kept is False:
            error = await refused(user, "undo/plan", terminalId=terminal)
            why = unkept or "nothing was kept for it"
            assert f"there is no way back to before this command: {why}" in error.message
        else:
            await user.request("undo/plan", {"terminalId": terminal})


@pytest.mark.parametrize("work", ["list", "plan", "restore"])
async def test_what_does_not_end_is_ended(project, monkeypatch, work):
    monkeypatch.setitem(undo_methods._LIMITS_S, work, 0.0)
    where = {"directory": str(project), "to": "1795981477506", "digest": "x"}
    async with open_host(Settings(), current()) as host, user_of(host) as user:
        given = where if work == "restore" else {"cwd": str(project)}
        error = await refused(user, f"undo/{work}", **given)
    assert (error.code, "was ended" in error.message) == (INTERNAL_ERROR, True)


async def test_a_restore_that_is_ended_midway_is_in_the_audit_log(project, tmp_path, monkeypatch):
    monkeypatch.setitem(undo_methods._LIMITS_S, "restore", 0.0)
    where = {"directory": str(project), "to": "1795981477506", "digest": "x"}
    settings = Settings(audit_dir=str(tmp_path / "audit"))
    async with open_host(settings, current()) as host, user_of(host) as user:
        await refused(user, "undo/restore", **where)
    (entry,) = undos(tmp_path)
    assert (entry["directory"], entry["snapshot"]) == (str(project), "1795981477506")
    assert "was ended" in entry["reason"]


async def test_a_directory_that_cannot_be_resolved_stops_nothing(project, monkeypatch):
    blocked = threading.Event()

    def resolve(path):
        blocked.wait()
        return path

    monkeypatch.setattr(undo_methods, "_RESOLVE_S", 0.0)
    async with open_host(Settings(), current()) as host, user_of(host) as user:
        keep(project)
        (project / "a.py").write_text("two\n")
        running = await user.create("sleep 1000", cwd=str(project))
        monkeypatch.setattr(undo_methods.os.path, "realpath", resolve)
        try:
            found = await user.request("undo/plan", {"cwd": str(project)})
        finally:
            blocked.set()
            monkeypatch.undo()
    assert found["running"] == [running]


async def test_only_users_can_undo(project):
    names = {name for name in USER_METHODS.requests if "/undo/" in name}
    assert len(names) == 3
    for write in (True, False):
        assert not names & set(share_methods_table("s", "t", write=write).requests)
    async with open_host(Settings(), current()) as host, agent_of(host) as agent:
        for name in names:
            error = await refused(agent, name, cwd=str(project))
            assert error.code == METHOD_NOT_FOUND
