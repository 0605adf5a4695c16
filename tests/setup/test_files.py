"""The file of an agent is replaced as a whole, or not at all."""

import contextlib
import os
import socket
import stat

import pytest

from acpterm.setup import files, json_edit
from acpterm.setup.files import SetupError
from acpterm.setup.plan import apply, plan_setup
from tests.setup.conftest import server

OTHER = b'{"mcpServers": {"other": {"command": "x"}}}'


@pytest.fixture
def file(home):
    """The settings of Gemini CLI, with another server."""
    file = home / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_bytes(OTHER)
    return file


def test_mode_of_the_file_stays(file, setup):
    file.chmod(0o640)
    setup.write(server("gemini"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [path.name for path in file.parent.iterdir()] == ["settings.json"]


def test_new_file_is_readable_by_its_owner_only(home, setup):
    setup.write(server("codex"))
    assert stat.S_IMODE((home / ".codex" / "config.toml").stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")
def test_owner_of_the_file_stays(file, setup):
    os.chown(file, 1234, 2345)
    setup.write(server("gemini"))
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 2345)


def test_extended_attributes_stay(file, setup):
    try:
        os.setxattr(file, "user.origin", b"dotfiles")
    except OSError:
        pytest.skip("the file system has no extended attributes")
    setup.write(server("gemini"))
    assert os.getxattr(file, "user.origin") == b"dotfiles"


def test_symbolic_link_stays_and_its_target_is_changed(file, setup, home):
    dotfiles = home / "dotfiles" / "gemini.json"
    dotfiles.parent.mkdir()
    file.rename(dotfiles)
    file.symlink_to("../dotfiles/gemini.json")
    setup.write(server("gemini"))
    assert file.is_symlink()
    assert b"acpterm" in dotfiles.read_bytes()
    setup.undo(server("gemini"))
    assert file.is_symlink()
    assert dotfiles.read_bytes() == OTHER


def test_undo_leaves_no_link_to_a_file_that_setup_created(home, setup):
    target = server("codex")
    setup.write(target)
    file, dotfiles = home / ".codex" / "config.toml", home / "codex.toml"
    file.rename(dotfiles)
    file.symlink_to(dotfiles)
    setup.undo(target)
    assert not file.is_symlink()
    assert not dotfiles.exists()
    setup.write(target)


@pytest.fixture
def chain(home):
    """A link to a link to a file: the paths of the three."""
    (home / "dotfiles").mkdir()
    paths = home / "link", home / "dotfiles" / "middle", home / "dotfiles" / "file"
    paths[0].symlink_to("dotfiles/middle")
    paths[1].symlink_to("file")
    paths[2].write_bytes(OTHER)
    return paths


def test_delete_leaves_no_link_of_a_chain(chain):
    files.delete(str(chain[0]), OTHER)
    assert not any(os.path.lexists(path) for path in chain)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_failed_delete_leaves_no_dangling_link(chain, monkeypatch, failing):
    unlink = os.unlink

    def fail(path):
        if os.path.basename(path) == chain[failing].name:
            raise PermissionError(13, "Permission denied", path)
        unlink(path)

    monkeypatch.setattr(files.os, "unlink", fail)
    with pytest.raises(SetupError, match=rf"{chain[failing].name}: Permission denied"):
        files.delete(str(chain[0]), OTHER)
    assert chain[failing].read_bytes() == OTHER


def test_dangling_link_is_an_error(file, setup):
    file.unlink()
    file.symlink_to("nowhere.json")
    with pytest.raises(SetupError, match=r"symbolic link to .*nowhere\.json, which does not exist"):
        setup.write(server("gemini"))
    assert os.readlink(file) == "nowhere.json"


def test_read_only_file_is_not_changed(file, setup):
    file.chmod(0o444)
    with pytest.raises(SetupError, match=r"is read-only.*chmod u"):
        setup.write(server("gemini"))
    assert file.read_bytes() == OTHER


def test_entry_in_another_style_is_set_up_already_also_in_a_read_only_file(file, setup):
    file.write_bytes(b'{"mcpServers":\n {"acpterm": {"args": ["mcp"], "command": "acpterm"}}}')
    file.chmod(0o444)
    assert not setup.write(server("gemini")).is_needed


def test_edit_that_would_change_other_settings_is_not_written(file, setup, monkeypatch):
    monkeypatch.setattr(json_edit, "add", lambda *_, **__: '{"mcpServers": {"acpterm": 1}}')
    with pytest.raises(SetupError, match=r"without a change to other settings"):
        setup.write(server("gemini"))
    assert file.read_bytes() == OTHER


def test_file_that_changes_before_the_write_is_not_overwritten(file, setup):
    plan = plan_setup(server("gemini"), setup.journal)
    file.write_bytes(b'{"theme": "new"}')
    with pytest.raises(SetupError, match="another program has changed it"):
        apply(plan, setup.journal)
    assert file.read_bytes() == b'{"theme": "new"}'
    assert [path.name for path in file.parent.iterdir()] == ["settings.json"]


def test_file_that_appears_before_the_write_is_not_overwritten(home, setup):
    plan = plan_setup(server("codex"), setup.journal)
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text("a = 1\n")
    with pytest.raises(SetupError, match="another program has changed it"):
        apply(plan, setup.journal)
    assert (home / ".codex" / "config.toml").read_text() == "a = 1\n"


def test_failed_write_leaves_the_file_and_no_other(file, setup, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(SetupError, match="No space left"):
        setup.write(server("gemini"))
    assert file.read_bytes() == OTHER
    assert [path.name for path in file.parent.iterdir()] == ["settings.json"]


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("gemini", b'{\n  "a": 1\n  "b": 2\n}', "settings.json:3: Expecting ',' delimiter"),
        ("gemini", b'{\n  "a": \n', "settings.json:3: "),
        ("gemini", b"[]", r"settings.json:1: the top level is not an object"),
        ("gemini", b'{"a": "\xff"}', "settings.json:1: is not UTF-8"),
        ("gemini", b"{}\n{}", "settings.json:2: Extra data"),
        ("gemini", b'{"a": 1 /* }', "settings.json:1: "),
        ("gemini", b'\n{"mcpServers": []}', 'settings.json:2: "mcpServers" is not an object'),
        ("gemini", b'{"mcpServers": null}', '"mcpServers" is not an object'),
        ("claude", b'{\n  "a": 1, // no\n}', ".claude.json:2: "),
        ("claude", b'{\n  "a": 1,\n}', r".claude.json:[23]: "),
        ("codex", b"a = 1\nb =\n", "config.toml:2: "),
        ("codex", b"mcp_servers = 1\n", '"mcp_servers" is not a table'),
    ],
)
def test_invalid_file_is_not_changed_and_the_error_has_the_line(home, setup, name, content, error):
    target = server(name)
    os.makedirs(os.path.dirname(target.path), exist_ok=True)
    with open(target.path, "wb") as file:
        file.write(content)
    with pytest.raises(SetupError, match=error) as caught:
        setup.write(target)
    assert "Nothing was changed" in str(caught.value)
    with open(target.path, "rb") as file:
        assert file.read() == content


def test_change_that_cannot_be_recorded_is_not_made(file, home, setup, tmp_path):
    (tmp_path / "state").write_text("not a directory")
    with pytest.raises(SetupError, match=r"state"):
        setup.write(server("gemini"))
    assert file.read_bytes() == OTHER
    with pytest.raises(SetupError, match=r"state"):
        setup.write(server("codex"))
    assert not (home / ".codex").exists()


@pytest.mark.parametrize("is_first", [True, False])
def test_failed_write_leaves_the_record_of_the_change_before(file, setup, is_first):
    if not is_first:
        setup.write(server("gemini"))
    before = setup.journal.load("gemini-mcp")
    assert (before is None) == is_first
    plan = plan_setup(server("gemini", "codex"), setup.journal)
    content = file.read_bytes()
    file.write_bytes(b"{}")
    with pytest.raises(SetupError, match="another program has changed it"):
        apply(plan, setup.journal)
    assert setup.journal.load("gemini-mcp") == before
    file.write_bytes(content)
    setup.undo(server("gemini"))
    assert file.read_bytes() == OTHER


def test_lost_record_is_no_error(file, setup, tmp_path):
    setup.write(server("gemini"))
    [record] = (tmp_path / "state" / "setup").iterdir()
    record.write_text("{")
    setup.undo(server("gemini"))
    assert file.read_bytes() == OTHER


def test_records_have_no_secrets_of_the_settings(file, setup, tmp_path):
    file.write_bytes(b'{"apiKey": "hunter1", "mcpServers": {}, "token": "hunter2"}')
    setup.write(server("gemini"))
    [record] = (tmp_path / "state" / "setup").iterdir()
    assert b"hunter" not in record.read_bytes()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600


@pytest.mark.parametrize("through_a_link", [False, True])
@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "directory"])
def test_only_regular_files_are_read(kind, through_a_link, file, setup, tmp_path):
    file.unlink()
    target = tmp_path / "target" if through_a_link else file
    if through_a_link:
        file.symlink_to(target)
    if kind == "fifo":
        os.mkfifo(target)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as sock, contextlib.chdir(target.parent):
            sock.bind(target.name)
    elif kind == "device":
        target.symlink_to("/dev/tty")
    else:
        target.mkdir()
    with pytest.raises(SetupError, match=r"settings\.json: is not a regular file"):
        setup.write(server("gemini"))


def test_fifo_that_replaces_the_file_is_not_waited_for(file, monkeypatch):
    found = os.stat(file)
    file.unlink()
    os.mkfifo(file)
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda *_: found)
        with pytest.raises(SetupError, match="is not a regular file"):
            files.read(str(file))


def test_changed_lines_are_shown_whole(file, setup):
    long = "x" * 5000
    before = f'{{"mcpServers": {{"other": {{"command": "{long}"}}}}, "end": "{long}"}}'
    file.write_text(before)
    plan = plan_setup(server("gemini"), setup.journal)
    shown = plan.diff()
    assert f"-{before}" in shown
    assert [line[1:] for line in shown[3:] if line[0] == "+"] == plan.after.decode().splitlines()
