"""The private directory of a shell, with which its programs may do anything."""

import os

import pytest

from acpterm.shell.directory import ShellDirectory


@pytest.fixture
def directory(tmp_path):
    directory = ShellDirectory(str(tmp_path))
    yield directory
    directory.close()


def test_fifo_in_place_of_the_next_file_does_not_block(directory):
    os.mkfifo(f"{directory.path}/1")
    with open(directory.write("1", "echo"), encoding="utf-8") as file:
        assert file.read() == "echo"


@pytest.mark.parametrize("target", ["elsewhere", "missing"])
def test_directory_that_became_a_link_is_not_used(directory, tmp_path, target):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "1").write_text("the user's")
    os.rename(directory.path, tmp_path / "moved")
    os.symlink(tmp_path / target, directory.path)
    with pytest.raises(OSError, match="private directory was replaced"):
        directory.write("1", "echo")
    directory.remove("1")
    directory.forget(1)
    directory.close()
    assert (elsewhere / "1").read_text() == "the user's"
    assert not (tmp_path / "missing").exists()


def test_link_in_place_of_the_next_file_is_replaced(directory, tmp_path):
    (tmp_path / "target").write_text("the user's")
    os.symlink(tmp_path / "target", f"{directory.path}/1")
    directory.write("1", "echo")
    assert (tmp_path / "target").read_text() == "the user's"


def test_other_directory_at_the_same_path_is_not_used(directory, tmp_path):
    os.rename(directory.path, tmp_path / "moved")
    os.mkdir(directory.path)
    with pytest.raises(OSError, match="private directory was replaced"):
        directory.write("1", "echo")
    directory.close()
    assert os.listdir(directory.path) == []


def test_directory_of_another_user_is_not_used(tmp_path, monkeypatch):
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(OSError, match="private directory was replaced"):
        ShellDirectory(str(tmp_path))


def test_deleted_directory_is_created_again_with_its_mode(directory):
    for name in os.listdir(directory.path):
        os.unlink(f"{directory.path}/{name}")
    os.rmdir(directory.path)
    assert os.path.exists(directory.write("1", "echo"))
    os.chmod(directory.path, 0o755)
    directory.write("2", "echo")
    assert os.stat(directory.path).st_mode & 0o777 == 0o700
    directory.close()
    assert not os.path.exists(directory.path)
