import ast
import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from acpterm.undo import operation
from acpterm.undo import restore as restore_module
from acpterm.undo import scan as scan_module
from acpterm.undo import store as store_module
from acpterm.undo.restore import _chmod
from acpterm.undo.scan import UnkeptError, root_of
from acpterm.undo.store import Snapshot, Store, _Cache
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll_blocking
from tests.undo.conftest import ENVIRONMENT


def test_no_code_of_the_users_repository_runs_and_its_git_stays_as_it_was(project):
    project.run("""
        printf '#!/bin/sh\\ntouch ran\\n' > .git/hooks/evil; chmod 755 .git/hooks/evil
        for hook in pre-commit post-checkout reference-transaction post-index-change; do
            cp .git/hooks/evil .git/hooks/$hook
        done
        git config core.hooksPath "$PWD/.git/hooks"
        git config core.fsmonitor "$PWD/.git/hooks/evil"
        git config core.autocrlf true
        git config core.attributesFile "$PWD/.gitattributes"
        for what in clean smudge process; do
            git config filter.evil.$what "$PWD/.git/hooks/evil"
        done
        git config diff.external "$PWD/.git/hooks/evil"
        rm -f ran
    """)
    path = os.path.join(project.root, ".git")
    before = [(name, os.stat(os.path.join(path, name)).st_mtime_ns) for name in os.listdir(path)]
    target = project.keep().snapshot
    after = [(name, os.stat(os.path.join(path, name)).st_mtime_ns) for name in os.listdir(path)]
    with open(os.path.join(project.root, "x.dat"), "w") as file:
        file.write("other")

    found, _ = project.undo(target)

    assert [one.path for one in found.files] == [b"x.dat"]
    assert after == before
    assert not os.path.exists(os.path.join(project.root, "ran"))
    assert project.run("cat crlf.txt x.dat") == b"one\r\ntwo\r\ndata\n"


def test_nothing_is_kept_again_when_nothing_has_changed(project):
    first = project.keep().snapshot
    again = project.keep().snapshot
    project.run("echo x > src/a.py")
    third = project.keep().snapshot

    assert again == first != third
    assert [one.id for one in project.store.snapshots()] == [first.id, third.id]


def test_a_change_of_the_same_size_and_time_is_kept(project):
    path = os.path.join(project.root, "src", "a.py")
    status = os.stat(path)
    first = project.keep().snapshot
    with open(path, "r+") as file:
        file.write("A")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert project.keep().snapshot != first


def test_what_is_not_kept_is_said_and_never_removed(project, monkeypatch):
    monkeypatch.setattr(scan_module, "FILE_BYTES_MAX", 100_000)
    project.run("""
        mkdir -p node_modules/x venv target
        touch node_modules/x/y venv/pyvenv.cfg target/CACHEDIR.TAG target/a
        head -c 100001 /dev/zero > large
        mkfifo fifo
    """)
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(project.root):
        listener.bind("socket")
    kept = project.keep()
    project.run("echo short > large; rm fifo; echo x > fifo; rm venv/pyvenv.cfg; touch venv/more")

    project.restored(kept.snapshot)

    assert kept.skipped == {
        b"fifo": "a socket, FIFO or device",
        b"socket": "a socket, FIFO or device",
        b"large": "larger than 0 MiB",
        b"node_modules": "restored by its tool",
        b"target": "restored by its tool",
        b"venv": "restored by its tool",
    }
    assert project.run("cat large fifo; ls venv") == b"short\nx\nmore\n"


def test_what_cannot_be_read_is_said(project):
    project.run("chmod 0 src/a.py src/deep")
    keep = "import sys; from acpterm.undo.store import Store; store = Store(*sys.argv[1:])"
    keep += "\nwith store.locked(): print(store.keep('test').skipped)"
    argv = [sys.executable, "-c", keep, project.stores, project.root]
    if os.getuid() == 0:
        # As a normal user, since root reads everything.
        argv = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", *argv]

    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=DEADLINE_S)

    assert ast.literal_eval(done.stdout) == {
        b"src/a.py": "Permission denied",
        b"src/deep": "Permission denied",
    }


def test_a_linked_worktree_gets_its_files_back_and_keeps_its_branches(project):
    project.run("git worktree add -q ../linked topic")
    linked = type(project)(os.path.join(os.path.dirname(project.root), "linked"), project.stores)
    target = linked.keep().snapshot
    linked.run("echo lost > topic.txt; git commit -qam more; rm src/a.py")
    head = linked.run("git rev-parse HEAD")

    found, failures = linked.undo(target)

    assert not failures
    assert "only files" in found.note
    assert linked.run("cat topic.txt src/a.py; git rev-parse HEAD") == b"t\na 2\n" + head


@pytest.mark.parametrize("is_packed", [False, True])
def test_branches_are_restored_unless_another_worktree_has_changed_its_own(project, is_packed):
    project.run("git worktree add -q ../linked topic")
    before = project.state()
    target = project.keep().snapshot
    project.run("git stash clear; git branch -D old; git commit -qam more; rm src/a.py")

    found, failures = project.undo(target)

    assert not failures
    assert not found.note
    assert project.state() == before
    project.run("git -C ../linked commit -q --allow-empty -m more; rm src/a.py")
    project.run("git pack-refs --all" if is_packed else "true")
    head = project.run("git rev-parse topic")
    found, failures = project.undo(target)
    assert not failures
    assert "topic, which another worktree has" in found.note
    assert project.run("cat src/a.py; git rev-parse topic") == b"a 2\n" + head


def test_objects_on_another_file_system_are_copied(project, monkeypatch):
    def refuse(*arguments, **more):
        raise OSError(errno.EXDEV, "cross-device")

    monkeypatch.setattr(os, "link", refuse)
    before = project.state()
    target = project.keep().snapshot
    project.run("rm -rf .git")

    assert project.restored(target) == before


def test_a_file_system_that_becomes_a_link_is_not_written_through(project, tmp_path):
    (tmp_path / "outside").mkdir()
    target = project.keep().snapshot
    project.run("rm -r src; ln -s ../outside src")

    project.undo(target)

    assert not os.listdir(tmp_path / "outside")


@pytest.mark.parametrize("directory", ["/", "/tmp", "~", "~/.."])
def test_a_general_directory_is_refused(directory):
    with pytest.raises(UnkeptError, match="too general"):
        root_of(os.path.expanduser(directory))


def test_the_repository_around_a_directory_is_kept(project):
    assert root_of(os.path.join(project.root, "src", "deep")) == project.root


def test_too_many_files_and_a_missing_git_are_said(project, monkeypatch):
    monkeypatch.setattr(scan_module, "ENTRIES_MAX", 10)
    with pytest.raises(UnkeptError, match="more than 10 files"):
        project.keep()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnkeptError, match="no git on this machine"):
        Store(project.stores, project.root)


def test_the_store_itself_is_not_kept(project):
    with pytest.raises(UnkeptError, match="own files"):
        Store(os.path.join(project.root, "state"), project.root)


def test_only_the_user_can_read_the_store(project):
    project.keep()
    for directory in (project.stores, project.store.directory):
        assert os.stat(directory).st_mode & 0o777 == 0o700


def test_pruning_keeps_the_newest_up_to_number_age_and_size(project):
    for number in range(6):
        project.run(f"head -c 100000 /dev/urandom > random; echo {number} > number")
        project.keep()
    states = [one.id for one in project.store.snapshots()]
    large = project.store.size()
    with project.store.locked():
        project.store.prune(kept=4)
        assert [one.id for one in project.store.snapshots()] == states[2:]
        assert project.store.size() < large - 150_000
        project.store.prune(size=project.store.size() - 150_000)
        left = project.store.snapshots()
        assert left[-1].id == states[-1]
        assert 1 < len(left) < 4
        project.store.prune(age_s=-1)
        assert [one.id for one in project.store.snapshots()] == states[-1:]
    before = project.state()
    target = project.store.snapshots()[0]
    project.run("rm -rf .git random")
    assert project.restored(target) == before


def test_pruning_drops_the_users_objects_that_no_snapshot_needs(project):
    project.run("git commit -q --allow-empty -m unneeded")
    commit = project.run("git rev-parse HEAD").decode().strip()
    path = os.path.join(os.fsdecode(project.store.linked), commit[:2], commit[2:])
    project.keep()
    assert os.path.exists(path)
    project.run("git reset -q HEAD~1; git reflog expire --expire=now --all; git gc -q --prune=now")
    project.keep()
    with project.store.locked():
        project.store.prune()
        assert os.path.exists(path)
        project.store.prune(kept=1)
        assert not os.path.exists(path)


def test_pruning_removes_the_stores_of_directories_that_are_no_longer_used(
    project, empty, tmp_path
):
    project.keep()
    (tmp_path / "second").mkdir()
    second = type(project)(tmp_path / "second", project.stores)
    second.keep()
    old = time.time() - 8 * 24 * 3600
    os.utime(os.path.join(project.store.directory, "cache"), (old, old))
    with second.store.locked():
        second.store.prune()
    assert os.listdir(project.stores) == [os.path.basename(second.store.directory)]


def test_a_file_that_changed_just_before_it_was_read_is_read_again():
    began = 10**18 + 1
    old, young = (0, 0, began - 10**9, began - 10**9, 1), (0, 0, began - 10**9, began - 10**6, 1)
    cache = _Cache("", {b"old": old, b"young": young}, {}, {}, {}, began)
    assert cache.is_unchanged(b"old", old)
    assert not cache.is_unchanged(b"young", young)


# A `git` that gets a part of its input, and whose parent, or itself, is killed then.
_KILLER = """#!/bin/sh
case "$*" in *"{word}"*)
    head -c {size} | {git} "$@"
    kill -9 {victim}
    exit 1;;
esac
exec {git} "$@"
"""


def killed_in(project, tmp_path, word, size, victim, *command):
    """Run a command of which git, or the process itself, is killed."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    git = tmp_path / "bin" / "git"
    text = _KILLER.format(word=word, size=size, victim=victim, git=shutil.which("git"))
    git.write_text(text)
    git.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    return subprocess.run(
        [sys.executable, *command],
        env=environment,
        capture_output=True,
        check=False,
        text=True,
        timeout=DEADLINE_S,
    )


@pytest.mark.parametrize("victim", ["$PPID", "$$"])
@pytest.mark.parametrize("size", [0, 300, -2000, -300, -5])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_kill_while_a_snapshot_is_taken_loses_nothing(project, tmp_path, victim, size, is_first):
    before = project.state()
    target = None if is_first else project.keep().snapshot
    project.run("find . -name '*.py' -exec sed -i s/1/2/ {} +; git stash clear")
    changed = project.state()

    command = ("-m", "acpterm.undo", "keep", project.stores, project.root)
    done = killed_in(project, tmp_path, "fast-import", size, victim, *command)

    assert done.returncode == -signal.SIGKILL or "error" in done.stdout
    assert project.state() == changed
    assert project.store.snapshots() == ([] if is_first else [target])
    if target is not None:
        assert project.restored(target) == before
    else:
        after = project.keep().snapshot
        project.run("rm -r src")
        assert project.restored(after) == changed


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_cache_from_before_the_newest_snapshot_is_not_used(empty, monkeypatch, is_removed):
    monkeypatch.setattr(store_module, "_RACE_NS", 0)
    monkeypatch.setattr(store_module, "_COARSE_RACE_NS", 0)
    empty.run("echo 1 > a")
    empty.keep()
    empty.run("echo 2 > b")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "_save_cache", lambda *_: None)
        empty.keep()
    empty.run('rm -r "$PWD"' if is_removed else "rm b")

    kept = empty.keep().snapshot

    names = empty.store.git("ls-tree", "-r", "--name-only", kept.ref, "files/").split()
    assert names == ([] if is_removed else [b"files/a"])


# Kills itself at one of its renames or removals.
_UNDO = """
import os, signal, sys
from acpterm.undo.restore import apply, plan
from acpterm.undo.store import Store

left = int(sys.argv[3])

def killing(work):
    def call(*arguments, **more):
        global left
        if "dir_fd" in str(more) and not (left := left - 1):
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*arguments, **more)
    return call

os.rename, os.unlink, os.chmod = killing(os.rename), killing(os.unlink), killing(os.chmod)
store = Store(*sys.argv[1:3])
with store.locked():
    target = store.snapshots()[0]
    apply(store, plan(store, store.keep("before an undo"), target))
"""


@pytest.mark.parametrize("step", [1, 5, 12, 20, 30])
def test_a_kill_while_a_snapshot_is_restored_loses_neither_state(project, step):
    before = project.state()
    target = project.keep().snapshot
    project.run("git stash -q; git commit -q --allow-empty -m x; rm -r src; chmod 777 .")
    lost = project.state()

    command = [sys.executable, "-c", _UNDO, project.stores, project.root, str(step)]
    done = subprocess.run(command, check=False, timeout=DEADLINE_S)

    assert done.returncode == -signal.SIGKILL
    now = project.store.snapshots()[-1]
    assert project.restored(target) == before
    assert project.restored(now) == lost


def test_an_object_that_was_changed_in_place_is_restored(project):
    before = project.state()
    target = project.keep().snapshot
    project.run("chmod -R u+w .git/objects; find .git -type f -exec truncate -s 0 {} +")

    found, failures = project.undo(target)

    assert not failures
    assert project.state() == before
    assert {one.path for one in found.changes} > set(found.damaged) > set()
    assert not project.undo(target)[0].changes


def test_a_git_directory_that_became_a_link_is_not_written_through(project, tmp_path):
    (tmp_path / "outside").mkdir()
    before = project.state()
    target = project.keep().snapshot
    project.run("rm -r .git/objects; ln -s ../../outside .git/objects")

    assert project.restored(target) == before
    assert not os.listdir(tmp_path / "outside")


@pytest.mark.parametrize("name", ["src", ".git/refs"])
def test_what_a_link_leads_to_is_not_kept_when_it_comes_meanwhile(
    project, tmp_path, monkeypatch, name
):
    (tmp_path / "outside" / "heads").mkdir(parents=True)
    for secret in ("a.py", "heads/main"):
        (tmp_path / "outside" / secret).write_text("confidential")
    path = os.path.join(project.root, name)

    def scan_and_replace(root):
        found = scan_module.scan(root)
        os.rename(path, tmp_path / "moved")
        os.symlink(tmp_path / "outside", path)
        return found

    monkeypatch.setattr(store_module, "scan", scan_and_replace)
    kept = project.keep().snapshot

    contents = project.store.git("archive", kept.ref, "files")
    assert b"one\r\ntwo" in contents
    assert b"confidential" not in contents


@pytest.mark.parametrize("is_old", [False, True])
def test_the_mode_of_what_a_link_leads_to_is_not_changed(tmp_path, monkeypatch, is_old):
    chmod = os.chmod

    def chmod_of_an_old_glibc(path, mode, *, follow_symlinks=True, **more):
        if not follow_symlinks:
            raise ValueError
        chmod(path, mode, **more)

    if is_old:
        monkeypatch.setattr(os, "chmod", chmod_of_an_old_glibc)
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o600)
    (tmp_path / "link").symlink_to("file")
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="link"):
            _chmod(b"link", 0o666, directory)
        _chmod(b"file", 0o640, directory)
    finally:
        os.close(directory)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_the_lock_lasts_until_git_ends_too(project, monkeypatch):
    monkeypatch.setattr(store_module, "_LOCK_TIMEOUT_S", 0.0)
    project.keep()
    with project.store.locked():
        git = project.store.start(["cat-file", "--batch"], stdin=subprocess.PIPE)
    with git:
        with pytest.raises(UnkeptError, match="another process"):
            project.keep()
        git.stdin.close()
    project.keep()


def test_what_a_killed_git_left_is_removed(project):
    project.keep()
    remains = [
        os.path.join(project.store.directory, "git", name)
        for name in (
            "objects/pack/tmp_pack_x",
            "objects/info/commit-graphs/commit-graph-chain.lock",
            "refs/undo/1.lock",
            "packed-refs.lock",
            "gc.pid",
            "gc.pid.lock",
            "fast_import_crash_1",
        )
    ]
    for path in remains:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w"):
            pass
    project.keep()
    assert not any(map(os.path.exists, remains))
    with project.store.locked():
        project.store.prune()


def test_a_disk_is_not_filled(project, monkeypatch):
    usage = shutil.disk_usage(project.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(UnkeptError, match="too little space"):
        project.keep()


def test_a_directory_that_does_not_change_is_still_used(project, empty, tmp_path):
    target = project.keep().snapshot
    old = time.time() - 8 * 24 * 3600
    os.utime(os.path.join(project.store.directory, "cache"), (old, old))
    project.keep()
    (tmp_path / "second").mkdir()
    second = type(project)(tmp_path / "second", project.stores)
    with second.store.locked():
        second.store.prune()
    assert project.store.snapshots() == [target]


def test_an_undo_without_a_target_keeps_nothing(empty):
    empty.run("echo 1 > a")
    with pytest.raises(UnkeptError, match="no earlier snapshot"):
        operation.planned(operation.find_store(empty.stores, empty.root), None)
    assert not os.path.exists(empty.stores)


def test_a_repository_is_not_restored_from_the_directory_around_it(empty):
    empty.run("mkdir -p sub/below plain")
    empty.keep()
    empty.run("git init -q sub")
    for name in ("sub", "sub/below"):
        found = operation.find_store(empty.stores, f"{empty.root}/{name}")
        assert found.root == f"{empty.root}/sub"
    assert operation.find_store(empty.stores, f"{empty.root}/plain").root == empty.root


@pytest.mark.parametrize("is_worktree", [False, True])
def test_what_was_a_repository_is_not_taken_for_the_one_around_it(project, is_worktree):
    project.run(
        "git worktree add -q sub topic"
        if is_worktree
        else "git init -q sub; echo t > sub/topic.txt"
    )
    project.run("mkdir sub/below")
    inner = type(project)(os.path.join(project.root, "sub"), project.stores)
    project.keep()
    inner.keep()
    project.run("rm -rf sub" if is_worktree else "rm -rf sub/.git sub/topic.txt")

    for name in ("sub", "sub/below"):
        found = operation.find_store(project.stores, f"{project.root}/{name}")
        assert found.root == inner.root
    assert operation.find_store(project.stores, f"{project.root}/src").root == project.root
    plan = operation.planned(found, None)
    _, failures = operation.restore(found, plan.target.id, operation.digest_of(plan))
    assert not failures
    assert (
        inner.run("cat topic.txt; git rev-parse --show-toplevel").decode() == f"t\n{inner.root}\n"
    )


def test_a_linked_worktree_that_was_removed_is_one_again(project):
    project.run("git worktree add -q ../linked topic")
    linked = type(project)(os.path.join(os.path.dirname(project.root), "linked"), project.stores)
    target = linked.keep().snapshot
    project.run("rm -r ../linked")

    linked.restored(target)

    assert linked.run("cat topic.txt; git status --porcelain; git branch --show-current") == (
        b"t\ntopic\n"
    )


@pytest.mark.parametrize("option", ["-q", "--detach"])
def test_other_worktrees_come_and_go_with_the_whole_repository(project, option):
    project.run(f"git worktree add {option} ../linked topic")
    project.run("cd ../linked; echo new > new; git add new")
    before = project.state()
    target = project.keep().snapshot
    project.run("rm -rf .git")
    gone = project.keep().snapshot

    assert project.restored(target) == before
    assert project.run("git -C ../linked status --porcelain") == b"A  new\n"
    project.restored(gone)

    assert project.restored(target) == before


def test_a_directory_never_removes_a_repository_that_was_made_in_it(empty):
    empty.run("echo 1 > a")
    target = empty.keep().snapshot
    empty.run("mkdir -p more other; git init -q more/sub; echo x > more/sub/x; rm a")
    empty.run("cd more/sub && git add x && git commit -qm x; echo y > ../y")

    found, failures = empty.undo(target)

    assert not failures
    assert "not removed: more/sub" in found.note
    assert sorted(os.listdir(empty.root)) == ["a", "more"]
    assert os.listdir(f"{empty.root}/more") == ["sub"]
    assert empty.run("git -C more/sub status --porcelain; cat more/sub/x") == b"x\n"
    assert empty.run("git -C more/sub log --format=%s") == b"x\n"


def test_a_plan_names_what_is_gone_and_was_not_kept(empty):
    empty.run("mkdir node_modules; echo 1 > node_modules/a; echo 1 > a; mkfifo fifo")
    target = empty.keep().snapshot
    empty.run("rm -r node_modules a")
    found, _ = empty.undo(target)
    assert found.note == "gone, and not kept: node_modules"


def test_nothing_is_restored_if_the_disk_has_too_little_space(empty, monkeypatch):
    empty.run("echo 1234567890 > a")
    target = empty.keep().snapshot
    empty.run("rm a")
    usage = shutil.disk_usage(empty.root)
    with empty.store.locked():
        found = restore_module.plan(empty.store, empty.store.keep("now"), target)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5))
        with pytest.raises(UnkeptError, match="nothing was restored: that needs"):
            restore_module.apply(empty.store, found)
    assert os.listdir(empty.root) == []


def test_a_lock_that_a_killed_git_left_costs_no_way_back(project):
    before = project.state()
    target = project.keep().snapshot
    project.run("git stash drop -q")
    with committing(project):
        pass
    assert os.path.exists(f"{project.root}/.git/index.lock")

    found, failures = project.undo(target)

    assert not failures
    assert ".git/index.lock is removed if the git that made it has ended" in found.note
    assert not os.path.exists(f"{project.root}/.git/index.lock")
    assert project.state() == before


def test_nothing_is_restored_while_git_works_there(project):
    target = project.keep().snapshot
    project.run("git update-ref -d refs/heads/old")
    with committing(project), pytest.raises(UnkeptError, match="git works there now"):
        project.undo(target)


def test_nothing_is_restored_while_another_program_has_the_lock(project):
    target = project.keep().snapshot
    project.run("git update-ref -d refs/heads/old")
    with (
        open(f"{project.root}/.git/index.lock", "w"),
        pytest.raises(UnkeptError, match="git works there now"),
    ):
        project.undo(target)


@contextlib.contextmanager
def committing(project):
    """Run a git that holds the lock of the index while its editor runs; then kill both."""
    editor = "touch ready; exec sleep 1000 #"
    git = subprocess.Popen(
        ["git", "commit", "-qa"],
        cwd=project.root,
        env=ENVIRONMENT | {"HOME": project.stores, "GIT_EDITOR": editor, "TERM": "xterm"},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        poll_blocking(lambda: os.path.exists(f"{project.root}/ready"))
        yield
    finally:
        os.killpg(git.pid, signal.SIGKILL)
        git.wait()


def test_an_error_midway_is_a_failure_of_an_undo_that_has_begun(empty, monkeypatch):
    empty.run("echo 1 > a; echo 2 > b; echo 3 > c")
    target = empty.keep().snapshot
    empty.run("rm a b c")
    read = restore_module._read

    def read_one(requests, contents, oids):
        yield next(read(requests, contents, oids))
        raise UnkeptError("the snapshot has lost x")

    with empty.store.locked():
        found = restore_module.plan(empty.store, empty.store.keep("now"), target)
        monkeypatch.setattr(restore_module, "_read", read_one)
        failures = restore_module.apply(empty.store, found)
    assert failures == ["the snapshot has lost x"]
    assert os.listdir(empty.root) == ["a"]


def test_a_write_that_fails_leaves_no_file_behind(empty, monkeypatch):
    empty.run("echo 1234567890 > a")
    target = empty.keep().snapshot
    empty.run("rm a")

    def full(*args, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "rename", full)
    _, failures = empty.undo(target)
    assert failures == ["a: No space left on device"]
    assert os.listdir(empty.root) == []


def test_a_snapshot_that_a_command_overtakes_is_never_one_of_before(empty):
    empty.run("echo 1 > a")
    with empty.store.locked():
        torn = empty.store.keep("before a command", lambda: True).snapshot
    assert torn.why == "during a command"
    assert empty.store.snapshots() == [torn]
    empty.run("echo 2 > a")

    for before in (None, torn.time + 0.0004):
        with pytest.raises(UnkeptError, match="no earlier snapshot"):
            operation.planned(empty.store, before)
    found = operation.planned(empty.store, torn.time)
    assert found.target == torn


@pytest.mark.parametrize("is_read_again", [False, True])
def test_what_was_kept_during_a_command_is_kept_before_the_next(empty, monkeypatch, is_read_again):
    for name in ("_RACE_NS", "_COARSE_RACE_NS"):
        monkeypatch.setattr(store_module, name, 10**12 if is_read_again else 0)
    empty.run("echo 1 > a")
    with empty.store.locked():
        torn = empty.store.keep("before a command", lambda: True).snapshot
    kept = empty.keep("before a command").snapshot
    assert kept != torn
    assert not kept.is_during
    with empty.store.locked():
        assert empty.store.keep("before a command", lambda: True).snapshot == kept


@pytest.mark.parametrize("has_begun", [False, True])
def test_the_process_looks_whether_the_command_has_begun(empty, has_begun):
    empty.run("echo 1 > a")
    read_end, write_end = os.pipe()
    if has_begun:
        os.write(write_end, b"\n")
    argv = [sys.executable, "-m", "acpterm.undo", "keep", empty.stores, empty.root]
    try:
        done = subprocess.run(
            argv, stdin=read_end, capture_output=True, check=True, timeout=DEADLINE_S
        )
    finally:
        os.close(read_end)
        os.close(write_end)
    assert json.loads(done.stdout)["is_before"] is not has_begun


def test_the_snapshot_of_a_host_that_dies_is_not_one_of_before(empty):
    empty.run("echo 1 > a")
    argv = [sys.executable, "-m", "acpterm.undo", "keep", empty.stores, empty.root]
    read_end, write_end = os.pipe()
    os.close(write_end)
    try:
        subprocess.run(argv, stdin=read_end, capture_output=True, check=True, timeout=DEADLINE_S)
    finally:
        os.close(read_end)
    assert [one.why for one in empty.store.snapshots()] == ["during a command"]


def test_only_the_user_can_read_the_copies(project):
    project.keep()
    project.run("echo 3 > src/a.py")
    project.keep()
    linked = os.fsdecode(project.store.linked)
    for directory, _, names in os.walk(project.store.directory):
        for name in names:
            if not directory.startswith(linked) and name not in ("lock", "root"):
                assert not os.lstat(os.path.join(directory, name)).st_mode & 0o077, name


def test_what_was_unchanged_for_long_is_pruned_only_long_after_its_change(empty):
    empty.run("echo 1 > a")
    first = empty.keep().snapshot
    old = Snapshot(str(int(first.id) - int(1000 * (store_module.AGE_MAX_S + 60))), first.why)
    empty.store.git("update-ref", old.ref, first.ref)
    empty.store.git("update-ref", "-d", first.ref)
    empty.run("rm a")

    with empty.store.locked():
        kept = empty.store.keep("test")
        empty.store.prune()
        assert empty.store.snapshots() == [old, kept.snapshot]
        assert not kept.should_prune
        empty.store.prune(age_s=-1)
        assert empty.store.snapshots() == [kept.snapshot]


def test_a_store_without_a_snapshot_is_removed_when_it_is_old(project, empty, tmp_path):
    with project.store.locked():
        pass
    old = time.time() - 8 * 24 * 3600
    os.utime(project.store.directory, (old, old))
    (tmp_path / "second").mkdir()
    second = type(project)(tmp_path / "second", project.stores)
    second.keep()
    with second.store.locked():
        second.store.prune()
    assert os.listdir(project.stores) == [os.path.basename(second.store.directory)]
