"""`acpterm undo`: what it shows, restores, lists and refuses; and when the daemon keeps."""

import json
import os
import select
import shutil
import sys
import time
from types import SimpleNamespace

import msgspec
import pytest
import trio
import trio.testing

from acpterm.audit.entry import Entry
from acpterm.cli import undo as undo_module
from acpterm.commands.audit_format import audit_row
from acpterm.config import undo_dir
from acpterm.host import snapshots
from acpterm.host.agent import gate
from acpterm.undo.scan import FILES_ONLY
from acpterm.undo.store import Store
from acpterm.undo.terminals import note
from tests.support import connector
from tests.support.agent import agent_at
from tests.support.commands import run
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.processes import environment


@pytest.fixture
def project(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").write_text("one\n")
    return project


@pytest.fixture
def state(tmp_path):
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


async def undo(path, *words, cwd, **more):
    here = os.getcwd()
    os.chdir(cwd)
    try:
        return await run(path, "undo", *words, **more)
    finally:
        os.chdir(here)


async def test_undo_shows_asks_restores_and_is_undone(path, project, state):
    status, out, err = await undo(path, "--keep", cwd=project, **state)
    assert (status, out.split(" is kept as ")[0], err) == (0, str(project), "")
    (project / "a.py").write_text("two\n")
    (project / "new").mkdir()

    status, out, err = await undo(path, cwd=project, stdin=b"n\n", **state)
    assert (status, err) == (1, "Aborted!\n")
    assert "a.py | 2 +-" in out
    assert "directories to remove: new/" in out
    assert (project / "a.py").read_text() == "two\n"

    status, out, err = await undo(path, "-p", cwd=project, stdin=b"y\n", **state)
    assert (status, err) == (0, "")
    assert "-two\n+one" in out
    assert (project / "a.py").read_text() == "one\n"
    assert not (project / "new").exists()

    status, out, err = await undo(path, "--yes", cwd=project, **state)
    assert (status, err) == (0, "")
    assert (project / "a.py").read_text() == "two\n"
    assert (project / "new").is_dir()


async def test_an_undo_is_in_the_audit_log_also_without_a_daemon(path, project, state):
    _, out, _ = await undo(path, "--keep", "--json", cwd=project, **state)
    kept = json.loads(out)["id"]
    (project / "a.py").write_text("two\n")
    await undo(path, "--yes", cwd=project, **state)

    _, out, _ = await run(path, "audit", "--json", "--event", "undo", **state)

    # The shared daemon's log has those of other tests.
    (line,) = (one for one in out.splitlines() if json.loads(one).get("directory") == str(project))
    entry = json.loads(line)
    assert entry["by"] == "user"
    assert (entry["snapshot"], entry["changes"], entry["failures"]) == (kept, 1, 0)
    shown = audit_row(msgspec.json.decode(line, type=Entry)).what
    assert shown == f"{project}  to {kept}  (1 change, 0 failures)"


async def test_an_undo_that_is_interrupted_is_in_the_audit_log(path, project, state, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    _, out, _ = await undo(path, "--keep", "--json", cwd=project, **state)
    (project / "a.py").write_text("two\n")
    monkeypatch.setattr(undo_module, "restore", interrupted)
    status, _, _ = await undo(path, "--yes", cwd=project, **state)
    assert status != 0

    _, lines, _ = await run(path, "audit", "--json", "--event", "undo", **state)

    entries = map(json.loads, lines.splitlines())
    (entry,) = (one for one in entries if one.get("directory") == str(project))
    assert (entry["snapshot"], entry["reason"]) == (json.loads(out)["id"], "it was interrupted")


async def test_undo_lists_snapshots_and_restores_the_one_of_a_time(path, project, state):
    ids = []
    for number in range(3):
        (project / "a.py").write_text(f"{number}\n")
        _, out, _ = await undo(path, "--keep", "--json", cwd=project, **state)
        ids.append(json.loads(out)["id"])

    _, out, _ = await undo(path, "--list", "--json", cwd=project, **state)
    assert [one["id"] for one in json.loads(out)["snapshots"]] == ids
    _, out, _ = await undo(path, "--list", cwd=project, **state)
    assert [line.split()[0] for line in out.splitlines()[1:]] == ids[::-1]
    status, out, _ = await undo(path, ids[0], "--json", cwd=project, **state)
    shown = json.loads(out)
    assert (status, shown["to"], shown["restored"]) == (0, ids[0], False)
    assert shown["changes"] == [{"path": "a.py", "what": "change"}]
    assert (project / "a.py").read_text() == "2\n"
    await undo(path, ids[0], "--yes", cwd=project, **state)
    assert (project / "a.py").read_text() == "0\n"
    status, _, err = await undo(path, "1h", cwd=project, **state)
    assert status == 1
    assert "there is no earlier snapshot" in err


async def test_undo_finds_the_repository_that_was_removed_with_its_git(path, project, state):
    (project / ".git").mkdir()
    (project / "src").mkdir()
    await undo(path, "--keep", cwd=project / "src", **state)
    (project / ".git").rmdir()

    status, _, err = await undo(path, "--yes", cwd=project / "src", **state)

    assert (status, err) == (0, "")
    assert (project / ".git").is_dir()


async def test_an_undo_that_fails_in_part_says_so_and_how_to_go_on(path, project, state):
    _, out, _ = await undo(path, "--keep", "--json", cwd=project, **state)
    kept = json.loads(out)["id"]
    (project / "a.py").unlink()
    (project / "a.py").mkdir()
    # It is not kept, so it is not removed.
    os.mkfifo(project / "a.py" / "fifo")

    status, out, err = await undo(path, "--yes", cwd=project, **state)

    assert status == 1
    assert "acpterm: not restored: a.py: " in err
    assert "\nRestored" not in out
    assert f"Not all is restored. acpterm undo {kept} tries again" in out
    assert not (project / ".acpterm-undo.new").exists()


async def test_undo_restores_a_directory_that_is_gone(path, project, state):
    await undo(path, "--keep", cwd=project, **state)
    shutil.rmtree(project)

    status, _, err = await undo(path, "-C", "project", "--yes", cwd=project.parent, **state)

    assert (status, err) == (0, "")
    assert (project / "a.py").read_text() == "one\n"


async def test_a_repository_that_comes_or_goes_is_shown_by_one_line(path, project, state):
    await undo(path, "--keep", cwd=project, **state)
    (project / "sub" / ".git" / "hooks").mkdir(parents=True)
    (project / "sub" / ".git" / "hooks" / "pre-commit.sample").touch()
    (project / ".git").mkdir()
    project.chmod(0o700)

    _, out, _ = await undo(path, cwd=project, stdin=b"n\n", **state)

    assert "git:" not in out
    assert " modes: .\n" in out


async def test_a_list_says_that_the_first_snapshot_is_being_taken(path, project, state):
    store = Store(undo_dir(), str(project))
    with store.locked():
        _, out, _ = await undo(path, "--list", cwd=project, **state)
    assert out == f"the first snapshot of {project} is being taken\n"
    _, out, _ = await undo(path, "--list", cwd=project, **state)
    assert out == f"there are no snapshots of {project}\n"


async def test_undo_names_what_still_runs_there(path, user, project, state):
    await undo(path, "--keep", cwd=project, **state)
    (project / "a.py").write_text("two\n")
    await user.create("sleep 1000", "server", cwd=str(project))

    _, out, _ = await undo(path, cwd=project, stdin=b"n\n", **state)

    assert "runs there, and may write meanwhile: server: sleep 1000" in out


async def test_a_beginning_of_the_ids_of_a_live_and_a_released_terminal_is_refused(
    path, user, project, state
):
    await undo(path, "--keep", cwd=project, **state)
    store = Store(undo_dir(), str(project))
    live = await user.create("sleep 1000", cwd=str(project))
    released = f"{live[:-4]}zzzz"
    note(store, released, time.time())

    status, _, err = await undo(path, live[:-4], cwd=project, **state)
    assert status == 1
    assert err == f"acpterm: {live[:-4]!r} is the beginning of 2 terminals' ids: give more of it\n"

    status, _, err = await undo(path, live, "--yes", cwd=project, **state)
    assert (status, "nothing was kept for it" in err) == (1, True)
    status, _, err = await undo(path, released, "--yes", cwd=project, **state)
    assert (status, err) == (0, "")


async def test_keep_names_what_is_not_kept(path, project, state):
    (project / "node_modules").mkdir()
    status, out, _ = await undo(path, "--keep", cwd=project, **state)
    assert (status, "not kept: node_modules" in out) == (0, True)


@pytest.mark.parametrize("name", ["", "term_", "\udcff"])
async def test_what_is_no_id_is_no_terminal(path, project, state, name):
    await undo(path, "--keep", cwd=project, **state)
    note(Store(undo_dir(), str(project)), "term_zzzzzzzz", time.time())
    status, _, err = await undo(path, name, "--yes", cwd=project, **state)
    assert status == (1 if name == "term_" else 2)
    assert "no terminal" in err


async def test_undo_refuses_a_general_directory(path, state):
    status, _, err = await undo(path, cwd="/", **state)
    assert (status, err) == (1, "acpterm: / is too general a directory\n")


@pytest.mark.long
async def test_an_agents_command_is_undone_by_its_terminal(tmp_path, project, state):
    env = environment(**state, ACPTERM_UNDO="true", ACPTERM_PROFILE="open")
    async with daemon(tmp_path, env=env) as (_, path), agent_at(path) as agent:
        # On a busy machine a command begins before its snapshot is complete.
        with trio.fail_after(DEADLINE_S):
            while True:
                lost = await agent.create_ended("rm -rf *", cwd=str(project))
                assert not os.listdir(project)
                status, _, err = await run(path, "undo", lost, "--yes", **state)
                if "there is no way back" not in err:
                    break
                (project / "a.py").write_text("one\n")

        assert (status, err) == (0, "")
        assert (project / "a.py").read_text() == "one\n"


@pytest.mark.long
async def test_a_released_terminal_is_undone_as_long_as_its_snapshot_exists(
    tmp_path, project, state
):
    env = environment(**state, ACPTERM_UNDO="true", ACPTERM_PROFILE="open")
    async with daemon(tmp_path, env=env, terminate=True) as (_, path), agent_at(path) as agent:
        # On a busy machine a command begins before its snapshot is complete.
        with trio.fail_after(DEADLINE_S):
            while True:
                lost = await agent.create_ended("rm a.py", cwd=str(project))
                _, out, _ = await run(path, "inspect", lost, **state)
                if "not to before this command" not in out:
                    break
                (project / "a.py").write_text("one\n")
        assert f"undo            of its directory: acpterm undo {lost}\n" in out
        await agent.release(lost)
        status, _, err = await run(path, "undo", lost.removeprefix("term_"), "--yes", **state)
    assert (status, err) == (0, "")
    assert (project / "a.py").read_text() == "one\n"
    # The daemon has ended.
    (project / "a.py").unlink()
    status, _, err = await run(path, "undo", lost, "--yes", **state)
    assert (status, err) == (0, "")
    assert (project / "a.py").read_text() == "one\n"


@pytest.mark.long
async def test_a_terminal_in_a_linked_worktree_has_a_way_back_for_files_only(
    tmp_path, project, state
):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    await trio.run_process([*git, "init", "-q", "main"], cwd=tmp_path)
    await trio.run_process([*git, "commit", "-qm", "x", "--allow-empty"], cwd=tmp_path / "main")
    await trio.run_process([*git, "worktree", "add", "-q", "../linked"], cwd=tmp_path / "main")
    linked = tmp_path / "linked"
    env = environment(**state, ACPTERM_UNDO="true", ACPTERM_PROFILE="open")
    async with daemon(tmp_path, env=env) as (_, path), agent_at(path) as agent:
        # On a busy machine a command begins before its snapshot is complete.
        with trio.fail_after(DEADLINE_S):
            while True:
                (linked / "a.py").write_text("one\n")
                lost = await agent.create_ended("rm a.py", cwd=str(linked))
                _, out, _ = await run(path, "inspect", lost, **state)
                if "not to before this command" not in out:
                    break
        assert f"undo            of its directory: acpterm undo {lost}: {FILES_ONLY}\n" in out
        status, out, err = await run(path, "undo", lost, "--yes", **state)
    assert (status, err) == (0, "")
    assert "only files are restored" in out
    assert (linked / "a.py").read_text() == "one\n"


@pytest.mark.long
async def test_only_commands_that_change_nothing_are_not_kept(
    tmp_path, project, state, monkeypatch
):
    # The agent's own directory: in another one, git executes what that configures.
    monkeypatch.chdir(project)
    monkeypatch.setattr(connector, "_connectors", [])
    env = environment(**state, ACPTERM_UNDO="true", ACPTERM_PROFILE="guarded")
    async with daemon(tmp_path, env=env) as (_, path), agent_at(path) as agent:
        for line in ("git status", "ls", "cat a.py"):
            await agent.create_ended(line, cwd=str(project))
            assert not (tmp_path / "state" / "acpterm" / "undo").exists(), line
        # By its name it is safe in this profile. On a busy machine it begins before its snapshot.
        with trio.fail_after(DEADLINE_S):
            while " a command" not in (await undo(path, "--list", cwd=project, **state)).out:
                await agent.create_ended("npm run clean", cwd=str(project))


@pytest.mark.long
async def test_a_command_that_overtakes_its_snapshot_has_no_way_back(tmp_path, project, state):
    for number in range(300):
        (project / f"f{number}").write_bytes(os.urandom(100_000))
    env = environment(**state, ACPTERM_UNDO="true", ACPTERM_PROFILE="open")
    async with daemon(tmp_path, env=env) as (_, path), agent_at(path) as agent:
        lost = await agent.create_ended("rm -rf f*", cwd=str(project))
        with trio.fail_after(DEADLINE_S):
            while " a command" not in (await undo(path, "--list", cwd=project, **state)).out:
                await trio.sleep(0.05)
        _, listed, _ = await undo(path, "--list", cwd=project, **state)
        undone = await run(path, "undo", lost, "--yes", **state)
        newest = await undo(path, "--yes", cwd=project, **state)
    if "during a command" in listed:
        assert "there is no way back to before the command" in undone.err
        assert "there is no earlier snapshot" in newest.err
    else:  # a fast machine, or one on which the daemon heard too late that it was complete
        assert "Restored" in undone.out + newest.out
        assert len(os.listdir(project)) == 301


@pytest.mark.long
async def test_a_command_without_a_way_back_says_so(tmp_path, state):
    env = environment(**state, ACPTERM_UNDO="true", ACPTERM_PROFILE="open")
    async with (
        daemon(tmp_path, env=env) as (_, path),
        agent_at(path) as agent,
    ):
        terminal = await agent.create_ended("rm -rf /tmp/nothing-there", cwd="/tmp")
        _, out, _ = await run(path, "inspect", terminal, **state)
    assert "undo            not to before this command: " in out


@pytest.mark.long
async def test_an_agent_cannot_undo(tmp_path, project, state):
    env = environment(**state, ACPTERM_PROFILE="open")
    async with daemon(tmp_path, env=env) as (_, path), agent_at(path) as agent:
        output, status = await agent.run(f"{sys.executable} -m acpterm undo", cwd=str(project))
    assert status["exitCode"] == 1
    assert "only the user restores files" in " ".join(output.split())


async def test_a_slow_snapshot_delays_no_command_by_more_than_its_limit(
    nursery, autojump_clock, monkeypatch
):
    monkeypatch.setattr(trio.to_thread, "run_sync", _at_once)
    done = trio.Event()

    async def slow(root, running):
        await done.wait()
        running.note("")

    monkeypatch.setattr(snapshots, "_snapshot", slow)
    kept = snapshots.Snapshots(nursery.start_soon, is_on=True)
    began = trio.current_time()
    assert await kept.begin("/work", "local") == snapshots.BUSY
    assert trio.current_time() - began == pytest.approx(snapshots.DELAY_MAX_S)
    assert (await kept.keep("/work", "local")).why == snapshots.BUSY
    assert trio.current_time() - began == pytest.approx(2 * snapshots.DELAY_MAX_S)
    done.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (await kept.keep("/work", "local")).why == ""


@pytest.mark.parametrize(("decision", "expected"), [("ask", ""), ("allow", snapshots.BUSY)])
async def test_a_command_that_was_asked_about_waits_for_its_snapshot(
    nursery, autojump_clock, monkeypatch, decision, expected
):
    monkeypatch.setattr(trio.to_thread, "run_sync", _at_once)

    async def slow(root, running):
        await trio.sleep(1)
        running.note("")

    monkeypatch.setattr(snapshots, "_snapshot", slow)
    kept = snapshots.Snapshots(nursery.start_soon, is_on=True)
    connection = SimpleNamespace(guard=SimpleNamespace(snapshots=kept))
    verdict = SimpleNamespace(decision=decision)
    judgement = SimpleNamespace(is_harmless=False, cwd="/work", provider="local", verdict=verdict)
    assert await gate.begin(connection, judgement) == expected


async def _at_once(work, *args, **options):
    return work(*args)


async def test_commands_at_once_in_one_directory_are_each_kept(nursery, monkeypatch):
    begun, going_on = [], trio.Event()

    async def snapshot(root, running):
        begun.append(root)
        await going_on.wait()
        running.note("")

    monkeypatch.setattr(snapshots, "_snapshot", snapshot)
    monkeypatch.setattr(trio.to_thread, "run_sync", _at_once)
    kept, found = snapshots.Snapshots(nursery.start_soon, is_on=True), []

    async def keep():
        found.append((await kept.keep("/work", "local", max_s=DEADLINE_S)).why)

    async with trio.open_nursery() as at_once:
        for _ in range(3):
            at_once.start_soon(keep)
        await trio.testing.wait_all_tasks_blocked()
        assert begun == ["/work"]
        going_on.set()
    assert begun == 3 * ["/work"]
    assert found == ["", "", ""]


def is_marked(running):
    return bool(select.select([running.read_end], [], [], 0)[0])


async def test_a_command_that_begins_marks_the_snapshots_around_it(
    nursery, autojump_clock, monkeypatch
):
    taken = {}

    async def endless(root, running):
        taken[root] = running
        await trio.sleep_forever()

    monkeypatch.setattr(snapshots, "_snapshot", endless)
    monkeypatch.setattr(trio.to_thread, "run_sync", _at_once)
    kept = snapshots.Snapshots(nursery.start_soon, is_on=True)
    for directory in ("/work", "/work/sub", "/other"):
        await kept.keep(directory, "local")
    assert [is_marked(taken[name]) for name in taken] == [False, False, False]

    await kept.begin("/work/sub", "local")

    assert {name: is_marked(one) for name, one in taken.items()} == {
        "/work": True,
        "/work/sub": True,
        "/other": False,
    }
    nursery.cancel_scope.cancel()


async def test_a_linked_worktree_has_a_way_back_for_files_only(nursery, monkeypatch, tmp_path):
    async def snapshot(root, running):
        running.note("")

    monkeypatch.setattr(snapshots, "_snapshot", snapshot)
    kept = snapshots.Snapshots(nursery.start_soon, is_on=True)
    (tmp_path / ".git").write_text("gitdir: /elsewhere/.git/worktrees/x\n")
    found = await kept.keep(str(tmp_path), "local", max_s=DEADLINE_S)
    assert found.why == FILES_ONLY
    assert await kept.begin(str(tmp_path), "local") == FILES_ONLY


async def test_a_snapshot_that_hangs_is_given_up(nursery, autojump_clock, monkeypatch):
    async def endless(root, running):
        await trio.sleep_forever()

    monkeypatch.setattr(snapshots, "_snapshot", endless)
    monkeypatch.setattr(trio.to_thread, "run_sync", _at_once)
    kept = snapshots.Snapshots(nursery.start_soon, is_on=True)
    found = await kept.keep("/work", "local", max_s=2 * snapshots.SNAPSHOT_MAX_S)
    assert found.why == "the snapshot of its directory took too long"


@pytest.mark.parametrize(
    ("unkept", "can_undo", "expected"),
    [
        ("", True, "; acpterm undo can bring back all of it"),
        ("", False, ""),
        (None, False, ""),
        ("no git", False, "; no undo: no git"),
        (FILES_ONLY, True, "; acpterm undo can bring back all of it"),
        (FILES_ONLY, False, ""),
        (snapshots.BUSY, False, "; its snapshot for acpterm undo is not complete yet"),
    ],
)
def test_a_question_says_whether_there_is_a_way_back(unkept, can_undo, expected):
    assert gate._way_back(unkept, can_undo=can_undo) == expected
