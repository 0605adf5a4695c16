"""The keeper's log."""

import os
import subprocess
import sys

_LOG = "import sys; from acpterm.keeper.process.diagnostics import log; log(sys.argv[1])"
_FAIL = (
    "from acpterm.keeper.process.loop import Loop\n"
    "loop = Loop()\n"
    "loop.call_later(0, lambda: 1 / 0)\n"
    "loop.turn(1.0)"
)


def run(code, *args, stderr):
    subprocess.run([sys.executable, "-c", code, *args], stderr=stderr, timeout=20, check=True)


def test_log_does_not_block_when_its_pipe_is_full():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    try:
        run(_LOG, "message", stderr=writer)
        run(_FAIL, stderr=writer)
    finally:
        os.close(reader)
        os.close(writer)


def test_log_escapes_what_is_not_utf8(tmp_path):
    with (tmp_path / "log").open("wb") as file:
        run(_LOG, b"/no/\xff", stderr=file)
    assert (tmp_path / "log").read_text().endswith(": /no/\\udcff\n")


def test_exception_of_a_handler_is_logged(tmp_path):
    with (tmp_path / "log").open("wb") as file:
        run(_FAIL, stderr=file)
    assert "ZeroDivisionError" in (tmp_path / "log").read_text()
