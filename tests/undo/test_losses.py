"""Each loss is undone byte for byte, and the undo itself, too."""

import pytest

LOSSES = [
    "git checkout -- .",
    "git checkout -f topic",
    "git restore .",
    "git restore --staged --worktree .",
    "git reset --hard",
    "git reset --hard HEAD~1",
    "git reset --hard && git gc -q --prune=now",
    "git clean -fdx",
    "git clean -fdX",
    "git stash drop",
    "git stash clear",
    "git stash clear && git reflog expire --expire=now --all && git gc -q --prune=now",
    "git stash -u",
    "git stash -a",
    "git stash -q && git stash pop 'stash@{1}'",
    "git branch -D topic",
    "git branch -D topic && git reflog expire --expire=now --all && git gc -q --prune=now",
    "git branch -m old other",
    "git tag -d v1",
    "git stash -q && git rebase -q topic",
    "git stash -q && git merge -q topic",
    "git commit -q --amend -m other",
    "git commit -qam all",
    "git add -A",
    "git rm -rqf src",
    "git rm -q --cached src/a.py",
    "git update-ref -d refs/heads/old",
    "git pack-refs --all && git branch -D old",
    "git reflog expire --expire=now --all",
    "git config user.name evil",
    "rm -rf .git",
    "rm -rf .git && git init -q -b other . && git add -A && git commit -qm x",
    "rm -rf src",
    "rm -rf -- * .[a-z]*",
    "rm src/a.py 'new file' .env",
    "mv src/a.py src/b.py",
    "mv src other",
    "cp src/a.py src/e.py",
    "> src/e.py",
    "echo x > src/d.py",
    "truncate -s 1 src/deep/bytes",
    "chmod -R 777 .",
    "chmod 644 .env",
    "chmod 600 src/a.py && chmod 444 run.sh",
    "chmod 500 src/deep",
    "rm link && echo file > link",
    "ln -sf src/b.py link",
    "rm src/a.py && ln -s /etc/passwd src/a.py",
    "rm -r src && echo file > src",
    "rm -r src && ln -s /nowhere src",
    "rm run.sh && mkdir -p run.sh/below && echo x > run.sh/below/x",
    "rmdir empty",
    "rmdir empty && echo x > empty",
    "mkdir -p more/and/more && echo x > more/and/x",
    "find . -name '*.py' -exec sed -i s/1/2/ {} +",
    "find . -name '*.py' -delete",
    "sed -i 's/\\r//' crlf.txt",
    "dd if=/dev/zero of=x.dat bs=1 count=3 conv=notrunc 2>/dev/null",
    "tar cf all.tar src && rm -r src",
    "cat src/a.py | tee src/*.py >/dev/null",
    "mkdir sub && cd sub && git init -q . && echo x > x && git add x && git commit -qm x",
]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_is_undone_byte_for_byte(project, loss):
    before = project.state()
    target = project.keep().snapshot
    project.run(loss)
    lost = project.state() if "rm -rf -- *" not in loss else None

    found, failures = project.undo(target)

    assert not failures
    assert project.state() == before
    if lost is not None:
        restored = project.restored(found.now)

        assert restored == lost


def test_a_directory_that_is_gone_is_restored(project):
    before = project.state()
    target = project.keep().snapshot
    project.run('rm -rf "$PWD"')

    restored = project.restored(target)

    assert restored == before


def test_a_nested_repository_and_a_submodule_are_restored_with_their_commits(project):
    project.run("""
        mkdir sub; cd sub; git init -q .; echo x > x; git add x; git commit -qm x; cd ..
        git clone -q . ../other 2>/dev/null
        git -c protocol.file.allow=always submodule add -q ../other module 2>/dev/null
    """)
    before = project.state()
    head = project.run("git -C sub rev-parse HEAD; git -C module rev-parse HEAD")
    target = project.keep().snapshot
    project.run("rm -rf sub module .git/modules")

    restored = project.restored(target)

    assert restored == before
    assert project.run("git -C sub rev-parse HEAD; git -C module rev-parse HEAD") == head
    assert project.run("git -C sub fsck --no-dangling && git -C module fsck --no-dangling") == b""


def test_an_unfinished_rebase_is_restored(project):
    project.run("git stash -q -u; echo m > src/a.py; git commit -qam m")
    project.run("git checkout -q topic; echo t > src/a.py; git commit -qam t")
    project.run("git rebase -q main || true")
    project.run("echo resolved > src/a.py")
    before = project.state()
    assert b"src/a.py" in project.run("git diff --name-only --diff-filter=U")
    target = project.keep().snapshot
    project.run("git rebase --abort")

    restored = project.restored(target)

    assert restored == before
