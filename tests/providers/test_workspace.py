"""What a workspace of a sandbox may be, and what is protected in it."""

import os
import pwd
import threading

import pytest

from acpterm.providers.landlock import remove_tree
from acpterm.providers.placeholders import Placeholders
from acpterm.providers.provider import ProviderError
from acpterm.providers.workspace import Workspace
from tests.support.deep_tree import make_deep


def test_workspace_is_refused_if_it_contains_the_home_of_the_user_database(monkeypatch, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    real = pwd.getpwuid(os.geteuid())
    entry = pwd.struct_passwd([str(home) if field == real.pw_dir else field for field in real])
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    monkeypatch.setenv("HOME", "/nonexistent")
    for path in (home, tmp_path):
        with pytest.raises(ProviderError, match=f"write to {home}"):
            Workspace.of(str(path))


def repository(directory, *parts):
    found = directory.joinpath(*parts)
    found.mkdir(parents=True)
    (found / "config").touch()
    return found


def test_hooks_of_nested_submodules_are_protected(tmp_path):
    git = repository(tmp_path, ".git")
    outer = repository(git, "modules", "group", "outer")
    inner = repository(outer, "modules", "inner")
    (inner / "hooks").mkdir()
    found = Workspace.of(str(tmp_path))
    assert {str(outer / "config"), str(inner / "hooks")} <= set(found.protected)
    assert str(outer / "hooks") in found.missing
    assert str(inner) in found.pinned


@pytest.mark.parametrize("link", ["modules", "modules/inner", "modules/outer/modules/inner"])
def test_workspace_with_a_link_to_the_repository_of_a_submodule_is_refused(tmp_path, link):
    git = repository(tmp_path, ".git")
    repository(tmp_path, "elsewhere")
    if link != "modules":
        repository(git, "modules", "outer", "modules", "other")
        (git / "modules" / "outer" / "config").touch()
    (git / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ProviderError, match="is a symbolic link"):
        Workspace.of(str(tmp_path))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "depth"), [("a", 1100), ("n" * 250, 20), ("modules", 40)], ids=["deep", "long", "odd"]
)
def test_submodules_are_read_only_as_a_whole_if_they_are_nested_too_deep(tmp_path, name, depth):
    git = repository(tmp_path, ".git")
    (git / "modules").mkdir()
    make_deep(git / "modules", depth, name)
    try:
        placeholders = Placeholders()
        found, token, created = placeholders.protect(str(tmp_path))
        assert str(git / "modules") in found.protected
        assert str(git / "hooks") in created
        placeholders.remove(token)
        assert sorted(os.listdir(git)) == ["config", "modules"]
    finally:
        remove_tree(str(git / "modules"))


def test_submodules_are_read_only_as_a_whole_if_there_are_too_many(tmp_path):
    git = repository(tmp_path, ".git")
    for number in range(65):
        repository(git, "modules", "a", "modules", str(number))
    found = Workspace.of(str(tmp_path))
    assert str(git / "modules") in found.protected
    assert not any(path.startswith(f"{git}/modules/") for path in found.pinned)


def test_workspace_with_a_fifo_in_place_of_git_does_not_block(tmp_path):
    os.mkfifo(tmp_path / ".git")
    # A thread, since a blocked open(2) could not be ended here.
    thread = threading.Thread(target=Workspace.of, args=[str(tmp_path)], daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.long
@pytest.mark.parametrize(("name", "depth"), [("a", 1100), ("n" * 250, 40)], ids=["deep", "long"])
def test_tree_is_removed_however_deep_it_is(tmp_path, name, depth):
    top = tmp_path / "acpterm-sandbox-x"
    top.mkdir()
    make_deep(top, depth, name)
    remove_tree(str(top))
    assert os.listdir(tmp_path) == []


def test_tree_without_permissions_is_removed_by_its_owner(tmp_path):
    """As a normal user, since root needs no permissions."""
    top = tmp_path / "acpterm-sandbox-x"
    (top / "a" / "b" / "c").mkdir(parents=True)
    (top / "a" / "b" / "file").touch()
    (top / "link").symlink_to(tmp_path)
    (tmp_path / "kept").touch()
    for path in (top / "a" / "b" / "c", top / "a" / "b", top / "a", top, tmp_path):
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)
        path.chmod(0o700 if path == tmp_path else 0)
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.chdir(tmp_path)
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            remove_tree("acpterm-sandbox-x")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert os.listdir(tmp_path) == ["kept"]
