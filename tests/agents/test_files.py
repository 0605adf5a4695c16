"""`fs/read_text_file` and `fs/write_text_file`, and the paths that they refuse."""

import os
import socket
import subprocess
import sys

import pytest

from acpterm.acp.agent import ReadTextFileRequest, WriteTextFileRequest
from acpterm.agents.prompt.files import Files
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError


@pytest.fixture
def inside(tmp_path):
    """The session's directory."""
    path = tmp_path / "inside"
    path.mkdir()
    return path


@pytest.fixture
def outside(tmp_path):
    """A sibling directory with a secret, whose name starts with the session directory's."""
    path = tmp_path / "inside-out"
    path.mkdir()
    (path / "secret").write_text("secret")
    return path


def read(root, path, **more):
    return Files([str(root)], read_only=False).read(ReadTextFileRequest("s", str(path), **more))


def write(root, path, content="new", *, read_only=False):
    files_ = Files([str(root)], read_only=read_only)
    files_.write(WriteTextFileRequest("s", str(path), content))


def refused(operation, *args, code=INVALID_PARAMS, **more):
    """Assert that a call is refused; return the error message."""
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RpcError) as info:
        operation(*args, **more)
    assert info.value.code == code
    assert len(os.listdir("/proc/self/fd")) == before, "a descriptor is left"
    return info.value.message


BOTH = pytest.mark.parametrize("operation", [read, write])


# Reading


def test_file_is_read_unchanged(inside):
    (inside / "a").write_bytes("é\r\nb\rc\x0cd\u2028\n\n".encode())
    assert read(inside, inside / "a") == "é\r\nb\rc\x0cd\u2028\n\n"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"line": 1}, "1\n2\r\n3\n4"),
        ({"line": 0}, "1\n2\r\n3\n4"),
        ({"line": 2}, "2\r\n3\n4"),
        ({"line": 4}, "4"),
        ({"line": 5}, ""),
        ({"limit": 2}, "1\n2\r\n"),
        ({"limit": 0}, ""),
        ({"line": 3, "limit": 1}, "3\n"),
        ({"line": 3, "limit": 2**32 - 1}, "3\n4"),
    ],
)
def test_read_honours_line_and_limit(inside, part, text):
    (inside / "a").write_bytes(b"1\n2\r\n3\n4")
    assert read(inside, inside / "a", **part) == text


def test_only_a_line_feed_ends_a_line(inside):
    # Otherwise a line number from grep would name another line here.
    (inside / "a").write_text("1\x0c1\x0b1\u20281\x851\x1c1\n2\n")
    assert read(inside, inside / "a", line=2) == "2\n"


def test_read_refuses_invalid_utf_8(inside):
    (inside / "a").write_bytes(b"ab\xff")
    assert refused(read, inside, inside / "a").endswith("is no text: byte 3 is not UTF-8")


def test_read_refuses_a_file_that_is_too_large(inside):
    files = Files([str(inside)], read_only=False, file_bytes_max=10)
    request = ReadTextFileRequest("s", str(inside / "a"))
    (inside / "a").write_text("x" * 10)
    assert files.read(request) == "x" * 10
    (inside / "a").write_text("x" * 11)
    assert "has 11 bytes: at most 10" in refused(files.read, request)


def test_missing_file_is_resource_not_found(inside):
    message = refused(read, inside, inside / "a", code=RESOURCE_NOT_FOUND)
    assert message == f"path '{inside}/a' cannot be read: No such file or directory"
    (inside / "file").touch()
    refused(read, inside, inside / "file/a", code=RESOURCE_NOT_FOUND)


def test_path_through_a_file_is_resource_not_found_when_written(inside):
    (inside / "file").touch()
    for path in ("file/a", "file/b/a"):
        message = refused(write, inside, inside / path, code=RESOURCE_NOT_FOUND)
        assert message == f"path '{inside}/{path}' cannot be written: Not a directory"


# Writing


def test_write_creates_missing_directories(inside):
    write(inside, inside / "b/c/a", "é\r\n")
    assert (inside / "b/c/a").read_bytes() == "é\r\n".encode()


def test_write_replaces_the_content_of_the_same_file(inside):
    path = inside / "a"
    path.write_text("much more than what comes")
    path.chmod(0o750)
    os.link(path, inside / "b")
    write(inside, path, "less")
    assert (inside / "b").read_text() == "less"
    assert path.stat().st_mode & 0o777 == 0o750


def test_write_is_refused_when_read_only(inside):
    (inside / "a").write_text("old")
    for path in ("a", "new", "dir/new"):
        assert "--read-only" in refused(write, inside, inside / path, read_only=True)
    assert [path.name for path in inside.iterdir()] == ["a"]
    assert (inside / "a").read_text() == "old"


def test_failed_write_is_an_error(inside):
    code = f"""
import resource, signal
from acpterm.acp.agent import WriteTextFileRequest
from acpterm.agents.prompt.files import Files
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
Files([{str(inside)!r}], read_only=False).write(
    WriteTextFileRequest("s", {str(inside / "a")!r}, "x" * 1000))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "RpcError" in done.stderr.splitlines()[-1]
    assert "cannot be written: File too large" in done.stderr


# Paths outside


@BOTH
def test_path_outside_is_refused_with_the_allowed_directories(operation, inside, outside):
    message = refused(operation, inside, outside / "secret")
    assert message.endswith(f"is outside of the session's directories: they are '{inside}'")
    refused(operation, inside, inside.parent)
    refused(operation, inside, "/etc/passwd")
    assert (outside / "secret").read_text() == "secret"


@BOTH
def test_parent_components_that_lead_outside_are_refused(operation, inside, outside):
    (inside / "b").mkdir()
    for way in (
        "../inside-out/secret",
        "b/../../inside-out/secret",
        "missing/../../inside-out/new",
    ):
        refused(operation, inside, f"{inside}/{way}")
    assert sorted(os.listdir(outside)) == ["secret"]
    assert sorted(os.listdir(inside)) == ["b"]


def test_parent_components_that_stay_inside_are_allowed(inside):
    (inside / "b").mkdir()
    write(inside, f"{inside}/b/.././a", "x")
    assert read(inside, f"{inside}//b/../a") == "x"


@BOTH
def test_symlink_to_the_outside_is_refused(operation, inside, outside):
    (inside / "file").symlink_to(outside / "secret")
    (inside / "dir").symlink_to(outside)
    (inside / "relative").symlink_to("../inside-out")
    (inside / "twice").symlink_to("dir")
    for way in ("file", "dir/secret", "relative/secret", "twice/secret", "dir/../secret"):
        refused(operation, inside, inside / way)
    assert (outside / "secret").read_text() == "secret"


def test_dangling_symlink_to_the_outside_creates_nothing(inside, outside):
    (inside / "file").symlink_to(outside / "new")
    (inside / "dir").symlink_to(outside / "dir")
    refused(write, inside, inside / "file")
    refused(write, inside, inside / "dir/new")
    assert os.listdir(outside) == ["secret"]


@BOTH
def test_symlink_loop_is_an_error(operation, inside):
    (inside / "a").symlink_to("a")
    refused(operation, inside, inside / "a")


def test_symlink_inside_is_followed(inside):
    (inside / "b").mkdir()
    (inside / "b/a").write_text("x")
    (inside / "file").symlink_to("b/a")
    (inside / "dir").symlink_to(inside / "b")
    assert read(inside, inside / "file") == read(inside, inside / "dir/a") == "x"
    write(inside, inside / "file")
    assert (inside / "b/a").read_text() == "new"
    assert (inside / "file").is_symlink()


@BOTH
def test_directory_replaced_by_a_symlink_meanwhile_is_refused(
    operation, inside, outside, monkeypatch
):
    (inside / "b").mkdir()
    (inside / "b/secret").write_text("mine")

    real = os.open

    def swapped(path, *args):
        if str(path) == str(inside / "b/secret"):
            (inside / "b").rename(inside / "c")
            (inside / "b").symlink_to(outside)
        return real(path, *args)

    monkeypatch.setattr(os, "open", swapped)
    assert "is outside" in refused(operation, inside, inside / "b/secret")
    assert (outside / "secret").read_text() == "secret"


def test_root_may_be_named_by_a_symlink(inside, tmp_path):
    (tmp_path / "link").symlink_to(inside)
    write(tmp_path / "link", tmp_path / "link/a", "x")
    assert read(tmp_path / "link", inside / "a") == read(inside, tmp_path / "link/a") == "x"


def test_several_roots_are_allowed(inside, outside):
    both = Files([str(inside), str(outside)], read_only=False)
    assert both.read(ReadTextFileRequest("s", str(outside / "secret"))) == "secret"
    with pytest.raises(RpcError, match=f"they are '{inside}' or '{outside}'$"):
        both.read(ReadTextFileRequest("s", "/etc/passwd"))


def test_root_may_be_the_file_system_root(inside):
    (inside / "a").write_text("x")
    assert read("/", inside / "a") == "x"


def test_all_access_is_refused_without_roots(inside):
    with pytest.raises(RpcError, match="they are none"):
        Files([], read_only=False).read(ReadTextFileRequest("s", str(inside / "a")))


# Not regular files


@BOTH
@pytest.mark.parametrize("path", ["a", "./a", "", "~/a"])
def test_relative_path_is_refused(operation, inside, path, monkeypatch):
    monkeypatch.chdir(inside)
    (inside / "a").touch()
    assert refused(operation, inside, path).endswith(
        "is not absolute: give the absolute path of a file"
    )


@BOTH
def test_path_with_a_nul_is_refused(operation, inside):
    assert "holds a NUL character" in refused(operation, inside, f"{inside}/a\0b")


@BOTH
def test_path_that_is_too_long_is_refused(operation, inside):
    assert "File name too long" in refused(operation, inside, inside / ("x" * 300))


@BOTH
def test_directory_is_refused(operation, inside):
    (inside / "b").mkdir()
    refused(operation, inside, inside / "b")
    refused(operation, inside, inside)
    refused(operation, inside, f"{inside}/b/")


@BOTH
def test_pipe_is_refused_without_blocking(operation, inside):
    os.mkfifo(inside / "pipe")
    refused(operation, inside, inside / "pipe")
    # Also with a process at the other end.
    other = os.open(inside / "pipe", os.O_RDWR)
    try:
        assert "is no regular file" in refused(operation, inside, inside / "pipe")
    finally:
        os.close(other)


@BOTH
def test_socket_is_refused(operation, inside):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(inside / "socket"))
        refused(operation, inside, inside / "socket")


@BOTH
def test_device_is_refused(operation):
    assert "is no regular file" in refused(operation, "/dev", "/dev/null")
    assert "is no regular file" in refused(operation, "/dev", "/dev/zero")
