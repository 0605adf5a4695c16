"""Facts about losses: what would be lost in a directory, read without a change or a side effect."""

import hashlib
import json
import os
import subprocess
import threading
import time

import pytest
import trio

from acpterm.config import Settings
from acpterm.config.profiles import BUILTIN
from acpterm.host import loss_facts
from acpterm.host.loss_facts import LossFacts, judged_now
from acpterm.host.open_host import open_host
from acpterm.jsonrpc import RpcError
from acpterm.policy.judge import Judge
from acpterm.runtime.exec_context import current
from tests.host.test_approvals import approver_of, asked, asking_host, start
from tests.support.agent import agent_of
from tests.support.cases import each_case
from tests.support.user import user_of

GUARDED = BUILTIN["guarded"]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a clone whose `a.py`, `b.py` are changed, `new.txt` is untracked, `x.log` ignored."""
    monkeypatch.setattr(loss_facts, "TEMPORARY", ("/nowhere",))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    (tmp_path / ".gitconfig").write_text(
        "[user]\nname = x\nemail = x@x\n[alias]\nst = status\nwipe = checkout -- .\n"
    )
    place = tmp_path / "work"
    script = """
    git init -q -b main --bare remote.git && git clone -q remote.git work 2>&1 && cd work &&
    git switch -qc main 2>&1
    echo 1 > a.py; echo 1 > b.py; echo 1 > kept.py; mkdir sub; echo 1 > sub/c.py
    printf '*.log\\n.env\\nout/\\n' > .gitignore
    git add . && git commit -qm one && git push -q origin main 2>&1
    git switch -qc topic && echo 2 > kept.py && git commit -qam two
    git branch done main && git branch ahead
    echo 2 > a.py; echo 2 > b.py; echo x > new.txt; echo x > x.log; echo x > .env
    """
    subprocess.run(["sh", "-c", script], cwd=tmp_path, env=env, check=True, capture_output=True)
    return place


def verdict_on(command, place, **more):
    def judge(findings):
        return Judge().judge(command, None, profile=GUARDED, findings=findings)

    return judged_now(judge, LossFacts(str(place), home=str(place.parent), **more))


@each_case(
    ("command", "reason"),
    [
        ("git checkout -- .", "throws away changes in 2 files: a.py, b.py"),
        ("git restore a.py", "throws away changes in a.py"),
        ("git wipe", "throws away changes in 2 files: a.py, b.py"),
        ("cd sub && git -C .. restore b.py", "throws away changes in b.py"),
        ("git clean -fd", "deletes new.txt"),
        ("git clean -fdX", "deletes .env"),
        ("echo x > new.txt", "overwrites new.txt"),
        ("cp kept.py a.py", "overwrites a.py"),
        ("cd sub && mv c.py ../new.txt", "overwrites new.txt"),
        ("rm *.txt *.py", "deletes 3 files: new.txt, a.py, b.py"),
        ("rm .env", "deletes .env"),
        ("git branch -D topic ahead", None),
        ("git branch -D main", "deletes commits of main"),
        ("git stash clear", None),
        ("git branch -f topic main", None),
        ("git update-ref refs/heads/main HEAD~9", "moves main, whose commits may be lost"),
        ("git tag -d x", None),
        ("git switch -q main && git commit --amend -m x", None),
    ],
)
def test_loss_is_named(command, reason, repository):
    verdict = verdict_on(command, repository)
    assert (verdict.reason if verdict.kind else None) == reason
    assert verdict.decision == ("ask" if reason else "allow")


@each_case(
    "command",
    [
        "git restore kept.py", "git restore sub", "git checkout main", "git checkout -- nowhere",
        "git clean -n", "echo x > kept.py", "echo x > fresh.txt", "echo x > x.log", "rm kept.py",
        "rm x.log", "mv new.txt fresh.txt", "cp a.py sub", "sed -i s/1/2/ kept.py", "git st",
        "git branch -D done", "git commit --amend -m x", "git rebase main", "git pull --rebase",
        "git push --force-with-lease", "cat /dev/null > /tmp/x", "git branch -f main",
        "git switch -C main", "git checkout -B main topic", "git branch -f nowhere",
    ],
)  # fmt: skip
def test_nothing_is_asked_when_nothing_would_be_lost(command, repository):
    verdict = verdict_on(command, repository)
    assert (verdict.decision, verdict.kind) == ("allow", None)


def test_pushed_commit_is_named_when_it_is_rewritten(repository):
    subprocess.run(["git", "push", "-q", "origin", "topic"], cwd=repository, check=True)
    for command in ("git commit --amend -m x", "git rebase -i main"):
        verdict = verdict_on(command, repository)
        assert verdict.kind == "history"
        assert verdict.reason.startswith("rewrites commits that were pushed: ")


def test_outside_of_a_repository_files_that_exist_are_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(loss_facts, "TEMPORARY", (str(tmp_path / "tmp"),))
    for name in ("work/a", "tmp/b", "c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    place = tmp_path / "work"
    assert verdict_on("rm a", place).reason == "deletes a"
    assert verdict_on("rm ../c", place).reason == "deletes ../c"
    assert verdict_on("rm ../tmp/b", place).decision == "allow"
    # A sandbox or container cannot change other files; of another host, nothing is known.
    assert verdict_on("rm ../c", place, where="isolated").decision == "allow"
    assert verdict_on("rm a", place, where="isolated").decision == "ask"
    assert verdict_on("rm a", place, where="elsewhere").decision == "allow"
    assert verdict_on("git checkout -- .", place, where="elsewhere").decision == "ask"


def test_reading_facts_changes_nothing_and_executes_nothing(repository):
    marker = repository.parent / "executed"
    hook = repository.parent / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    hook.chmod(0o755)
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n")
    values = {
        "core.fsmonitor": hook, "core.hooksPath": hook.parent, "filter.evil.clean": hook,
        "filter.evil.required": "true", "diff.evil.textconv": hook, "diff.external": hook,
        "core.pager": hook, "core.sshCommand": hook, "alias.status": f"!{hook}",
    }  # fmt: skip
    for name, value in values.items():
        subprocess.run(["git", "config", name, str(value)], cwd=repository, check=True)
    # Its time differs, so that git has to read it.
    os.utime(repository / "kept.py", (1, 1))
    index = repository / ".git/index"
    before = hashlib.sha256(index.read_bytes()).digest(), sorted(os.listdir(repository / ".git"))
    for command in ("git checkout -- .", "git clean -fdx", "rm kept.py a.py", "git stash clear"):
        verdict_on(command, repository)
    after = hashlib.sha256(index.read_bytes()).digest(), sorted(os.listdir(repository / ".git"))
    assert after == before
    assert not marker.exists()


def test_pipe_is_not_opened_and_the_loss_counts_in_time(repository, monkeypatch):
    monkeypatch.setattr(loss_facts, "FACTS_S", 0.3)
    (repository / ".git/config").unlink()
    os.mkfifo(repository / ".git/config")
    started = time.monotonic()
    assert verdict_on("git checkout -- .", repository).reason == "throws away changes in files"
    assert time.monotonic() - started < 30
    monkeypatch.setattr(loss_facts, "FACTS_S", 60.0)
    os.mkfifo(repository / "pipe")
    assert verdict_on("rm pipe", repository).decision == "allow"


def test_line_without_a_loss_starts_no_program(repository, monkeypatch):
    def refuse(*args, **more):
        raise AssertionError("a program was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    for command in ("git status", "git log --oneline", "make test", "cat a.py | head"):
        assert verdict_on(command, repository).pending == ()


@each_case(
    ("command", "reason"),
    [
        ("git checkout -- .", "throws away changes in 2 files: a.py, b.py"),
        ("git clean -fd", "deletes new.txt"),
        ("git reset --hard", "throws away changes in 2 files: a.py, b.py"),
        ("rm -r new.txt", "deletes new.txt"),
        ("> a.py", "overwrites a.py"),
        ("rm -rf .git", "deletes .git"),
        ("git reset --soft HEAD~2", "rewrites commits that were pushed: "),
    ],
)
def test_loss_needs_at_most_two_calls_of_git(repository, monkeypatch, command, reason):
    started = []
    run = subprocess.Popen.__init__

    def counted(self, arguments, **more):
        started.append(arguments)
        run(self, arguments, **more)

    if "--soft" in command:
        identity = ["-c", "user.name=x", "-c", "user.email=x@x"]
        subprocess.run(["git", *identity, "commit", "-qam", "three"], cwd=repository, check=True)
        subprocess.run(["git", "push", "-q", "origin", "topic"], cwd=repository, check=True)
    monkeypatch.setattr(subprocess.Popen, "__init__", counted)
    assert verdict_on(command, repository).reason.startswith(reason)
    assert len(started) <= 2


def test_directories_above_a_project_elsewhere_are_no_build_products(repository):
    build = repository / "build"
    build.mkdir()
    (build / "work.txt").write_text("x")
    root = "/nowhere/else"
    assert verdict_on("rm new.txt", repository, root=root).reason == "deletes new.txt"
    assert verdict_on("rm work.txt", build, root=root).reason == "deletes work.txt"
    assert verdict_on("rm build/work.txt", repository, root=root).kind is None


async def test_question_names_what_would_be_lost(repository):
    async with (
        asking_host(base="guarded", unknown="allow") as host,
        approver_of(host) as agent,
    ):
        id_ = await start(agent, "git checkout -- .", cwd=str(repository))
        question = await asked(agent)
        assert question["level"] == "dangerous"
        assert question["reason"] == "throws away changes in 2 files: a.py, b.py"
        assert not agent.has_response(id_)
        # Nothing would be lost: it runs.
        id_ = await start(agent, "git checkout -- kept.py", cwd=str(repository))
        assert (await agent.result(id_))["terminalId"]
        found = await agent.request(
            "_acpterm/command/check",
            {"sessionId": agent.session, "command": "rm new.txt", "cwd": str(repository)},
        )
        assert (found["kind"], found["reason"]) == ("work", "deletes new.txt")


@each_case(
    "command",
    [
        "rm new.txt", "mv a.py new.txt", "echo x > new.txt", "git commit --amend -m x",
        "git rebase main", "git checkout -- a.py", "git zap", "sed -i s/1/2/ a.py b.py new.txt",
    ],
)  # fmt: skip
def test_what_is_not_known_in_time_counts(command, repository, monkeypatch):
    monkeypatch.setattr(loss_facts, "FACTS_S", 0.0)
    verdict = verdict_on(command, repository)
    assert (verdict.decision, verdict.kind is None) == ("ask", False)
    assert "…" not in verdict.reason


@each_case(
    ("command", "reason"),
    [
        (
            "mkdir -p t1 && cd t1 && git checkout -- ..",
            "throws away changes in 2 files: a.py, b.py",
        ),
        ("mkdir t1; cd t1; rm ../new.txt", "deletes new.txt"),
        ("mkdir t1; cd t1; git wipe", None),
        ("mkdir t1; cd t1; git clean -fd", None),
        ("mkdir t1; cd t1; git clean -fd ..", "deletes new.txt"),
        ("mkdir t1; cd t1; rm new.txt", None),
        ("mkdir t1; cd t1; git branch -D main", "deletes commits of main"),
        ("git -C t1 reset --hard", "throws away changes in 2 files: a.py, b.py"),
    ],
)
def test_directory_that_the_line_makes_is_in_the_repository_of_its_parent(
    command, reason, repository
):
    verdict = verdict_on(command, repository)
    assert (verdict.reason if verdict.kind else None) == reason


@each_case(
    ("command", "reason"),
    [
        ("git clean -fe new.txt", None),
        ("git clean -fd --exclude=new.txt -q", None),
        ("git clean -fdx -e '*.log' -- .", "deletes 2 files: .env, new.txt"),
        ("git clean -f --no-dry-run --forc", "deletes files"),
    ],
)
def test_options_of_clean_are_those_that_are_known(command, reason, repository):
    verdict = verdict_on(command, repository)
    assert (verdict.reason if verdict.kind else None) == reason
    assert (repository / "new.txt").exists()


def test_pattern_is_not_searched_in_all_directories(repository, monkeypatch):
    (repository / "deep/er").mkdir(parents=True)
    (repository / "deep/er/new.tmpx").write_text("x")
    assert verdict_on("rm -f **/new.tmpx", repository).decision == "allow"
    assert verdict_on("rm -f */[!x]*/new.tmp?", repository).reason == "deletes deep/er/new.tmpx"
    monkeypatch.setattr(loss_facts, "FACTS_S", 0.3)
    started = time.monotonic()
    verdict_on("rm -f /*/*/*/*/*/*/*/zz*qq", repository)
    assert time.monotonic() - started < 5


def test_many_paths_among_many_changes_are_compared_fast(repository, monkeypatch):
    for number in range(100):
        (repository / f"d{number}").mkdir()
        for other in range(20):
            (repository / f"d{number}/{other}").write_text("x")
    compared = []
    plain = loss_facts._is_below
    monkeypatch.setattr(loss_facts, "_is_below", lambda *one: compared.append(one) or plain(*one))
    assert verdict_on("rm -r d*", repository).reason.startswith("deletes 100 files: ")
    assert len(compared) < 2000


@pytest.fixture
def hanging(monkeypatch):
    """Make the thread that finds out facts hang until the test ends."""
    is_over = threading.Event()
    hung = trio.Event()

    def find(self, losses):
        trio.from_thread.run_sync(hung.set)
        is_over.wait()
        return {}

    monkeypatch.setattr(LossFacts, "find", find)
    yield hung
    is_over.set()


async def test_file_system_that_hangs_delays_no_question(repository, monkeypatch, hanging):
    monkeypatch.setattr(loss_facts, "FACTS_S", 0.05)
    async with (
        asking_host(base="guarded", unknown="allow") as host,
        approver_of(host) as agent,
        user_of(host) as user,
    ):
        with trio.fail_after(30):
            await start(agent, "rm new.txt", cwd=str(repository))
            question = await asked(agent)
            assert question["reason"] == "deletes files"
            params = {"command": "rm new.txt", "cwd": str(repository)}
            found = await user.request("command/check", params)
            assert (found["kind"], found["reason"]) == ("work", "deletes files")


async def test_create_that_is_cancelled_while_facts_are_found_is_recorded(
    repository, tmp_path, monkeypatch, hanging
):
    settings = Settings(audit_dir=str(tmp_path / "audit"))
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        id_ = await start(agent, "rm new.txt", cwd=str(repository))
        await hanging.wait()
        await agent.notify("$/cancel_request", {"requestId": id_})
        with pytest.raises(RpcError):
            await agent.result(id_)
    log = (tmp_path / "audit" / "audit.jsonl").read_text()
    entries = [json.loads(line) for line in log.splitlines()]
    assert [one["command"] for one in entries if one["event"] == "create"] == ["rm new.txt"]


@each_case("profile", ["open", "pool", "guarded"])
async def test_facts_are_found_only_where_a_loss_is_not_allowed(profile, repository, monkeypatch):
    found = []
    plain = LossFacts.find
    monkeypatch.setattr(LossFacts, "find", lambda *one: found.append(one) or plain(*one))
    async with open_host(Settings(profile=profile), current()) as host, agent_of(host) as agent:
        for command in ("rm new.txt", "git checkout -- ."):
            await agent.request(
                "_acpterm/command/check",
                {"sessionId": agent.session, "command": command, "cwd": str(repository)},
            )
    assert bool(found) == (profile == "guarded")


@each_case("command", ["rm new.txt", "> new.txt", "rm kept.py"])
def test_without_git_nothing_counts_as_restorable(repository, monkeypatch, command):
    monkeypatch.setenv("PATH", "/nowhere")
    assert verdict_on(command, repository).kind == "work"
    assert verdict_on("rm missing.txt", repository).decision == "allow"


def test_reset_of_what_the_line_has_added_loses_untracked_files_too(repository):
    verdict = verdict_on("git add -A && git commit -qm x && git reset --hard HEAD~1", repository)
    assert any("new.txt" in (found or ()) for found in verdict.lost.values())
