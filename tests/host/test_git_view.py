"""A repository is judged without executing, writing or fetching anything, whatever it contains."""

import os
import shutil
import subprocess
import threading

import pytest

from acpterm.config.profiles import Kind
from acpterm.host import loss_facts
from acpterm.host.git_view import find_repository, parsed, view_of
from acpterm.host.loss_facts import LossFacts
from acpterm.policy.losses.loss import Loss, Need
from tests.support.cases import each_case


@pytest.fixture
def git(tmp_path, monkeypatch):
    """Return a function that runs git in `work`, a repository with a changed `a`."""
    monkeypatch.setattr(loss_facts, "TEMPORARY", ("/nowhere",))
    work = tmp_path / "work"
    env = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@x",
        "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@x",
    }  # fmt: skip

    def run(*arguments, cwd=work):
        subprocess.run(["git", *arguments], cwd=cwd, env=env, check=True, capture_output=True)

    work.mkdir()
    run("init", "-q", "-b", "main")
    for text in ("1", "2"):
        (work / "a").write_text(text)
        run("add", ".")
        run("commit", "-qm", text)
    (work / "a").write_text("3")
    # Its time differs, so that git has to read it.
    os.utime(work / "a", (1, 1))
    return run


def found_in(place, need, *operands, directory=""):
    """Return the finding for one loss."""
    loss = Loss(Kind.WORK, "{}", need, operands, directory)
    return LossFacts(str(place), home=str(place.parent)).find([loss])[loss]


def contents(place):
    """Return the mode and content of each file below a directory."""
    return {
        path: (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in place.rglob("*")
    }


HOSTILE = (
    "--output={0}", "--exec=touch {0}", "--upload-pack=touch {0}", "--no-index", "--ext-diff",
    "--textconv", "--no-dry-run", "--no-dry", "--forc", "--force", "-f", "-i", "-n", "-c", "-dxfe",
    "--interactive", "--git-dir={0}", "--config-env=core.fsmonitor=HOME", "--stdin", "--", "-",
    "--open-files-in-pager=touch {0}", "--pathspec-from-file={0}", "--index-output={0}", "", "-e",
    "a\0b", "^--output={0}", "--exclude={0}", "--exclude", ":(attr:filter)", "HEAD^{{/x", ":/x",
    "@{{-1}}",
)  # fmt: skip


@each_case("need", [one for one in Need if one is not Need.NOTHING])
def test_no_operand_makes_git_do_something_else(need, git, tmp_path):
    work, victim = tmp_path / "work", tmp_path / "victim"
    for name in ("victim", "work/untracked"):
        (tmp_path / name).write_text("precious")
    git("stash")
    git("stash", "apply")
    before = contents(tmp_path)
    texts = [one.format(victim) for one in HOSTILE]
    losses = [
        Loss(Kind.WORK, "{}", need, operands, "")
        for one in texts
        for operands in ((one,), ("", one), ("rebase", one), (one, "--forc"))
    ]
    LossFacts(str(work), home=str(tmp_path)).find(losses)
    assert contents(tmp_path) == before


def test_filter_of_a_pipe_that_the_settings_include_is_not_executed(git, tmp_path):
    marker, pipe = tmp_path / "executed", tmp_path / "work/.git/pipe"
    (tmp_path / "work/.gitattributes").write_text("* filter=evil\n")
    os.mkfifo(pipe)
    git("config", "include.path", str(pipe))
    writer = threading.Thread(
        target=_feed, args=(pipe, f'[filter "evil"]\nclean = touch {marker}; cat\n')
    )
    writer.start()
    try:
        assert found_in(tmp_path / "work", Need.CHANGED, ".") == ("a",)
    finally:
        pipe.unlink()
        pipe.touch()
        writer.join()
    assert not marker.exists()


def _feed(pipe, text):
    """Write nothing to whoever reads the pipe first, and then `text`, until it is removed."""
    for part in ("", *[text] * 20):
        while True:
            try:
                descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            except FileNotFoundError:
                return
            except OSError:
                # Nobody reads it.
                continue
            break
        is_over = not os.path.exists(pipe) or not os.stat(pipe).st_mode & 0o010000
        os.write(descriptor, part.encode())
        os.close(descriptor)
        if is_over:
            return


def test_missing_object_of_a_partial_clone_is_not_fetched(git, tmp_path):
    work, marker = tmp_path / "work", tmp_path / "executed"
    git("config", "uploadpack.allowFilter", "true")
    git(
        "clone",
        "-q",
        "--no-checkout",
        "--filter=tree:0",
        f"file://{work}",
        str(tmp_path / "part"),
        cwd=tmp_path,
    )
    part = tmp_path / "part"
    git("config", "remote.origin.uploadpack", f"touch {marker};", cwd=part)
    git("update-ref", "refs/heads/other", "HEAD~1", cwd=part)
    before = contents(part)
    for need, operands in (
        (Need.RESET, ("HEAD~1",)),
        (Need.DEFAULT, ("main",)),
        (Need.CHANGED, (".",)),
    ):
        found_in(part, need, *operands)
    assert not marker.exists()
    assert contents(part) == before


def test_replaced_commit_is_not_believed(git, tmp_path):
    git("switch", "-qc", "topic")
    git("commit", "-qam", "three")
    git("replace", "topic", "main")
    assert len(found_in(tmp_path / "work", Need.RESET, "main")) == 1


def test_linked_worktree_and_submodule_are_found(git, tmp_path):
    work = tmp_path / "work"
    git("branch", "linked")
    git("worktree", "add", "-q", "../linked", "linked")
    (tmp_path / "linked/a").write_text("4")
    assert found_in(tmp_path / "linked", Need.RESET, "HEAD~1") == ("a",)
    git("-c", "protocol.file.allow=always", "submodule", "add", "-q", f"file://{work}", "sub")
    (work / "sub/a").write_text("5")
    assert found_in(work / "sub", Need.CHANGED, ".") == ("a",)
    assert found_in(work, Need.DELETED, "sub/a", "../linked/a") == ("sub/a", "../linked/a")
    assert found_in(work, Need.DELETED, ".git/config") == (".git/config",)


@each_case("break_", ["index", "HEAD", "config", "gitfile"])
def test_what_git_cannot_read_is_not_known(break_, git, tmp_path):
    work = tmp_path / "work"
    if break_ == "gitfile":
        shutil.move(work / ".git", tmp_path / "elsewhere")
        (work / ".git").write_text("nonsense")
    else:
        path = work / ".git" / break_
        path.unlink()
        if break_ == "config":
            path.symlink_to("/dev/zero")
        else:
            path.write_text("nonsense")
    assert found_in(work, Need.CHANGED, ".") is None


def test_settings_are_read_as_git_reads_them(tmp_path):
    text = (
        '[core]\n\tbare = false ; no\n[Alias] st = status # x\n[alias]\n a = "b # c" d\\\n e\n'
        '[remote "O\\"o"]\nfetch=+refs/*:refs/x/*\n[x.Y]z\n[alias]\n q = !sh -c \\"a\\tb\\"\n'
        "[core]\n worktree=/x y  \n"
    )
    path = tmp_path / "config"
    path.write_text(text)
    command = ["git", "config", "-f", str(path), "--null", "--list"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    pairs = [
        tuple((f"{one}\ntrue" if "\n" not in one else one).split("\n", 1))
        for one in listed.split("\0")
        if one
    ]
    assert list(parsed(text)) == pairs


def test_view_is_removed_and_has_no_program_of_the_repository(git, tmp_path):
    for name in ("core.fsmonitor", "core.sshCommand", "diff.external", "filter.x.clean"):
        git("config", name, "touch executed")
    repository = find_repository(str(tmp_path / "work"), str(tmp_path))
    with view_of(repository) as env:
        place = env["GIT_DIR"]
        command = ["git", "config", "--list"]
        listed = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
        assert os.stat(place).st_mode & 0o777 == 0o700
    assert "executed" not in listed
    assert not os.path.exists(place)
