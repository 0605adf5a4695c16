"""Facts about losses: what would be lost in a directory, read without a change or a side effect."""

import hashlib
import os
import subprocess
import time

import pytest

from acpterm.config.profiles import BUILTIN
from acpterm.host import loss_facts
from acpterm.host.loss_facts import LossFacts, judged_now
from acpterm.policy.judge import Judge
from tests.host.test_approvals import approver_of, asked, asking_host, start
from tests.support.cases import each_case

GUARDED = BUILTIN["guarded"]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a clone whose `a.py`, `b.py` are changed, `new.txt` is untracked, `x.log` ignored."""
    monkeypatch.setattr(loss_facts, "TEMPORARY", ("/nowhere",))
    # The machine may be busy.
    monkeypatch.setattr(loss_facts, "FACTS_S", 60.0)
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
        "git push --force-with-lease", "cat /dev/null > /tmp/x",
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
