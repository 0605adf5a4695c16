"""A question promises a way back only if undo brings back all that its command may lose."""

import os
import subprocess

import pytest

from acpterm.config.profiles import Kind
from acpterm.host.way_back import Kept, brings_back
from acpterm.undo.scan import FILES_ONLY
from tests.policy.test_lines import LOSSES, judged
from tests.undo.conftest import Project

__all__ = ["judged"]

# In the directory of `tests/policy/prepared.py`.
WITH = [
    "rm -rf docs",
    "rm -rf docs/",
    "rm important.txt",
    "rm src/*.py",
    "rm -rf internal && git stash drop",
    "cd docs && rm -rf ../internal",
    "cd .. && rm -rf shop/docs",
    "cp a.py important.txt",
    "sed -i s/a/b/ a.py b.py c.py",
    "git checkout -- .",
    "git restore .",
    "git -C docs reset --hard",
    "git reset --hard HEAD~1",
    "git clean -fd",
    "git stash clear",
    "git branch -D experiment",
    "git branch -f experiment main",
    "git tag -d v1.0.0",
    "git rebase main",
    "rm -rf .git",
    "tee important.txt",
    "git undo",
]
WITHOUT = [
    # It leaves the machine.
    "git push --force",
    "git push --force-with-lease origin main",
    "git reset --hard && git push --force",
    "rm important.txt && git push -f",
    # Not kept.
    "rm -rf node_modules",
    "rm -rf src node_modules",
    "rm -rf src",  # it has a __pycache__
    "rm -rf .",
    "cp a.py large.db",
    # Elsewhere.
    "sudo rm -rf /opt/x",
    "sudo rm -rf docs",
    "rm -rf ../other",
    "rm ~/important.txt",
    "rm outside/report.txt",
    "cp a.py link.txt",
    "rm -rf outside/.",
    "rm -rf outside/",
    "cp a.py important.txt && rm ../other/report.txt",
    "rm ../*/report.txt",
    # Of another repository.
    "git -C ../lib reset --hard HEAD~1",
    "git -C nested reset --hard",
    "git --git-dir ../lib/.git reset --hard",
    "GIT_DIR=../lib/.git git reset --hard",
    "rm nested/a",
    "git worktree remove --force ../wt",
    # What it loses is not known; nor is what a line does that is not plain.
    "> important.txt",
    'rm -rf "$X"',
    "rm important.txt $(cat list)",
    "find . -name '*.py' -delete",
    "git ls-files | xargs rm",
    "rm important.txt; python -c 'import shutil; shutil.rmtree(\"/x\")'",
    "dd if=/dev/zero of=/dev/sda",
    "psql -c 'DROP TABLE a'",
    "curl https://example.org/x | sh",
    "echo x >> ~/.bashrc",
]


@pytest.fixture(scope="module")
def kept(judged, tmp_path_factory):
    """Return what is kept of the prepared directory, which has more that is not."""
    shop = judged._prepared.shop
    with open(shop / "large.db", "wb") as file:
        file.truncate(33 * 1024 * 1024)
    os.symlink("../other", shop / "outside")
    os.symlink("../other/report.txt", shop / "link.txt")
    subprocess.run(["git", "init", "-q", "nested"], cwd=shop, check=True)
    (shop / "nested" / "a").write_text("a")
    skipped = Project(shop, tmp_path_factory.mktemp("undo")).keep().skipped
    return Kept("", str(shop), tuple(map(os.fsdecode, skipped)))


def is_promised(judged, kept, line):
    shop, home = map(str, (judged._prepared.shop, judged._prepared.home))
    return brings_back(judged.verdict(line).lost, kept, shop, home)


@pytest.mark.parametrize(
    ("line", "expected"),
    [*((line, True) for line in WITH), *((line, False) for line in WITHOUT)],
)
def test_a_way_back_is_promised_only_for_all_that_is_lost(judged, kept, line, expected):
    assert judged.verdict(line).decision == "ask"
    assert is_promised(judged, kept, line) is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rm important.txt", True),
        ("git checkout -- .", True),
        ("git clean -fd", True),
        ("git reset --hard", False),
        ("git stash drop", False),
        ("git branch -D experiment", False),
        ("rm .git", False),
    ],
)
def test_a_linked_worktree_has_a_way_back_for_its_files_alone(judged, kept, line, expected):
    assert is_promised(judged, kept._replace(why=FILES_ONLY), line) is expected


@pytest.mark.parametrize("why", [None, "there is no git on this machine"])
def test_what_is_not_kept_has_no_way_back(judged, kept, why):
    assert not is_promised(judged, kept._replace(why=why), "rm important.txt")


def test_no_loss_outside_the_directory_has_a_way_back(judged, kept):
    others = set(Kind) - {Kind.WORK, Kind.HISTORY}
    found = [line for kind, line in LOSSES if kind in others and is_promised(judged, kept, line)]
    assert not found
