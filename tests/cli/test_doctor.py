"""`acpterm doctor`: its checks; a failing check never hides the others."""

import errno
import json
import os

import msgspec
import pytest
import trio

from acpterm.commands.doctor import paths, probes, programs, runner, system
from acpterm.commands.doctor.check import ok
from acpterm.config import Settings
from acpterm.runtime.command_line import find_shell
from acpterm.terminal.vt import library
from tests.support.commands import run
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S


async def run_doctor(path: str, *words: str, **env: str) -> tuple[int, dict[str, dict]]:
    """Run `acpterm doctor --json`; return its exit status and the results by name."""
    for _ in range(3):
        status, out, err = await run(path, "doctor", "--json", *words, **env)
        assert err == ""
        # On a busy machine, a check may time out: try again.
        if "no answer within 3 s" not in out:
            break
    return status, {found["check"]: found for found in json.loads(out)}


@pytest.mark.long
async def test_failed_checks_have_advice(tmp_path):
    path = str(tmp_path / "run" / "agent.sock")
    status, out, err = await run(path, "doctor")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        word = line.split(" ", 1)[0]
        assert word in ("", "ok", "missing", "problem")
        assert (word in ("missing", "problem")) == after.startswith(" ")
    assert not (tmp_path / "run").exists()
    assert "not running; it is started when it is needed" in out


@pytest.mark.long
async def test_trial_terminal_works_on_this_machine(tmp_path):
    status, found = await run_doctor(str(tmp_path / "run" / "agent.sock"))
    assert status == 0
    assert found["a terminal"]["state"] == "ok"
    assert [one for one in found.values() if one["fatal"]] == []
    assert [one["check"] for one in found.values() if "could not be" in one["found"]] == []


@pytest.mark.long
async def test_running_daemon_is_reported(tmp_path):
    async with daemon(tmp_path) as (process, path):
        _, found = await run_doctor(path)
        assert f"pid {process.pid}" in found["daemon"]["found"]
        assert found["daemon"]["state"] == "ok"
        os.chmod(path, 0o666)
        _, found = await run_doctor(path)
        assert found["sockets"]["state"] == "problem"
        assert found["sockets"]["advice"] == f"chmod 600 {path}"


@pytest.mark.long
async def test_invalid_settings_are_fatal(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("rows = 0\n")
    status, found = await run_doctor(str(tmp_path / "agent.sock"), "--config", str(file))
    assert status == 1
    assert f"{file}: rows = 0" in found["settings"]["found"]


async def test_places_are_checked_although_another_one_is_invalid(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('[ssh.bad]\nsessions = 1\n[ssh.far]\nconfig = "/nowhere"\n')
    _, found = await run_doctor(str(tmp_path / "agent.sock"), "--config", str(file))
    assert found["settings"]["found"].startswith(f"{file}: [ssh.bad]: sessions = 1: ")
    assert found["ssh:far"]["state"] == "problem"
    assert "ssh:bad" not in found


@pytest.mark.long
async def test_socket_directory_writable_by_others_is_a_problem(tmp_path):
    directory = tmp_path / "loose"
    directory.mkdir()
    directory.chmod(0o777)
    status, found = await run_doctor(str(directory / "agent.sock"))
    assert status == 1
    assert "can be written to by others (mode 777)" in found["sockets"]["found"]


@pytest.mark.long
async def test_sticky_socket_directory_is_a_problem(tmp_path):
    directory = tmp_path / "sticky"
    directory.mkdir()
    directory.chmod(0o1777)
    status, found = await run_doctor(str(directory / "agent.sock"))
    assert status == 1
    assert "can be written to by others (mode 1777)" in found["sockets"]["found"]
    assert found["sockets"]["advice"] == "choose a --socket in a directory of your own"


@pytest.mark.parametrize("first", ["4711\n", ""])
def test_log_lines_are_counted_without_the_pid(tmp_path, first):
    chosen = Settings(socket=str(tmp_path / "agent.sock"))
    (tmp_path / "agent.sock.log").write_text(f"{first}one\ntwo\n")
    assert "has 2 lines, the last: two" in paths.logs(chosen).found


@pytest.mark.parametrize(
    ("mode", "wrong"),
    [
        (0o700, None),
        (0o711, None),
        (0o755, "can be read by others (mode 755)"),
        (0o730, "can be written to by others (mode 730): nothing is recorded"),
    ],
)
def test_record_directory_must_be_private(tmp_path, mode, wrong):
    directory = tmp_path / "recordings"
    directory.mkdir()
    directory.chmod(mode)
    chosen = Settings(record=True, record_dir=str(directory))
    found = paths.recordings(chosen)
    if wrong is None:
        assert found == ok("state", f"recordings are kept in {directory}")
    else:
        assert found.state == "problem"
        assert found.found == f"{directory}, where recordings are kept, {wrong}"
        assert found.advice == f"chmod 700 {directory}, or choose another record_dir"
    # Without recording, the directory's mode does not matter.
    assert paths.recordings(msgspec.structs.replace(chosen, record=False)).state == "ok"


def test_record_directory_is_checked_for_its_owner_and_may_be_absent(tmp_path, monkeypatch):
    chosen = Settings(record=True, record_dir=str(tmp_path / "none"))
    assert paths.recordings(chosen).state == "ok"
    chosen = Settings(record=True, record_dir=str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    found = paths.recordings(chosen)
    assert f"is not yours (uid {os.getuid()}): nothing is recorded" in found.found
    assert found.advice == "choose another record_dir"


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize(
    ("directory", "wrong"),
    [("/proc/x", "it cannot be made"), ("/proc", "nothing can be written to it")],
)
def test_unwritable_record_directory_is_a_problem(directory, wrong, record):
    found = paths.recordings(Settings(record=record, record_dir=directory))
    assert found.state == "problem"
    why = os.strerror(errno.EACCES if os.geteuid() else errno.ENOENT)
    assert found.found == f"nothing can be recorded in {directory}: {wrong}: {why}"


@pytest.mark.long
async def test_socket_directory_that_cannot_be_created_is_a_problem():
    status, found = await run_doctor("/proc/x/agent.sock")
    assert status == 1
    assert found["sockets"]["found"].startswith("/proc/x cannot be made: ")


def test_trial_directories_are_removed(tmp_path):
    paths.recordings(Settings(record_dir=str(tmp_path / "none" / "recordings")))
    paths.recordings(Settings(record_dir=str(tmp_path)))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (None, "no shell text can be run: {}: No such file or directory"),
        ("#!/none/sh\n", "no shell text can be run: {}: No such file or directory"),
        ("#!/bin/sh\necho 'what is -c?'\n", "{} does not do exit 7: what is -c?"),
    ],
)
@pytest.mark.long
async def test_unusable_shell_is_reported_only_by_its_own_check(tmp_path, code, expected):
    shell = tmp_path / "shell"
    if code is not None:
        shell.write_text(code)
        shell.chmod(0o755)
    _, before = await run_doctor(str(tmp_path / "agent.sock"))
    assert before["shell"] == msgspec.to_builtins(ok("shell", find_shell("auto")))
    status, found = await run_doctor(str(tmp_path / "agent.sock"), ACPTERM_SHELL=str(shell))
    assert status == 0
    assert (found["shell"]["state"], found["shell"]["found"]) == ("problem", expected.format(shell))
    # Checks that need a shell use another one.
    for name in ("a terminal", "input prompts"):
        assert found[name] == before[name]


@pytest.mark.long
async def test_default_record_directory_is_checked(tmp_path):
    directory = tmp_path / "acpterm" / "recordings"
    directory.mkdir(parents=True, mode=0o755)
    directory.chmod(0o755)
    env = {"ACPTERM_RECORD": "true", "XDG_STATE_HOME": str(tmp_path)}
    status, found = await run_doctor(str(tmp_path / "agent.sock"), **env)
    assert status == 0
    assert found["state"]["advice"] == f"chmod 700 {directory}, or choose another record_dir"


@pytest.mark.long
async def test_doctor_mentions_only_programs_that_are_used(tmp_path):
    _, found = await run_doctor(str(tmp_path / "agent.sock"))
    unused = {"ssh", "slurm", "kubectl", "asciinema", "tmux"}
    assert not unused & found.keys()
    results = json.dumps(found)
    assert "which this version has not" not in results


async def test_missing_packages_and_an_unbuilt_page_are_reported(monkeypatch, tmp_path):
    assert programs.mcp() == ok("MCP", "`acpterm mcp` has the tools, and so has the HTTP server")
    monkeypatch.setattr("importlib.resources.files", lambda _: tmp_path)
    (tmp_path / "web" / "page" / "vendor").mkdir(parents=True)
    assert programs.web() == ok("page", "`acpterm open` shows it")
    (tmp_path / "web" / "page" / "vendor").rmdir()
    assert (programs.web().state, programs.web().found) == ("missing", "it was not built")
    find = programs.find_spec
    absent = {"starlette", "wsproto", "mcp"}
    monkeypatch.setattr(programs, "find_spec", lambda name: None if name in absent else find(name))
    assert programs.web().found == "no starlette, wsproto"
    assert "pipx inject acpterm 'h11>=" in programs.web().advice
    assert programs.mcp().found == "no mcp"
    assert programs.mcp().advice.startswith("`acpterm mcp` works; for its tools over HTTP: pipx ")
    assert programs.git().state == "ok"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (programs.git().state, programs.git().found) == ("missing", "no git")


@pytest.mark.long
async def test_broken_or_slow_systemctl_is_missing(tmp_path):
    directory = tmp_path / "bin"
    directory.mkdir()
    path = os.pathsep.join((str(directory), "/bin", "/usr/bin"))
    for code, expected in ("echo no; exit 1", "no"), ("sleep 60", "no answer within 2 s"):
        (directory / "systemctl").write_text(f"#!/bin/sh\n{code}\n")
        (directory / "systemctl").chmod(0o755)
        started_at = trio.current_time()
        status, found = await run_doctor(str(tmp_path / "agent.sock"), PATH=path)
        assert trio.current_time() - started_at < DEADLINE_S
        assert status == 0
        assert found["systemd"]["state"] == "missing"
        assert f"your user manager does not run: {expected}" in found["systemd"]["found"]


async def test_emulator_check_reports_a_missing_library(monkeypatch):
    assert await probes.emulator() == ok("emulator", "libghostty-vt shows what a program prints")
    monkeypatch.setattr(library, "_load", lambda: "ImportError: none")
    found = await probes.emulator()
    assert found.state == "missing"
    assert "(ImportError: none): install it with `pip install pyghostty`" in found.found


@pytest.mark.long
async def test_doctor_reports_the_location_of_logs(tmp_path):
    path = tmp_path / "agent.sock"
    _, found = await run_doctor(str(path))
    logs = found["logs"]
    assert logs["state"] == "ok"
    assert f"a daemon that a command starts logs to {path}.log; " in logs["found"]
    assert "journalctl --user -u acpterm" in logs["found"]
    # A daemon that a command has started logs to a file.
    assert (await run(str(path), "run", "-d", "sleep", "1000")).status == 0
    try:
        _, found = await run_doctor(str(path))
        assert f"{path}.log has 0 lines; " in found["logs"]["found"]
        with (tmp_path / "agent.sock.log").open("a") as log:
            log.write("one\ntwo\x1b[31m\n")
        _, found = await run_doctor(str(path))
        assert f"{path}.log has 2 lines, the last: two\\x1b[31m; " in found["logs"]["found"]
    finally:
        await run(str(path), "shutdown")


@pytest.mark.long
async def test_unknown_term_is_reported(tmp_path):
    path = str(tmp_path / "agent.sock")
    _, found = await run_doctor(path, TERM="my\x1bterm", LC_ALL="POSIX", PYTHONCOERCECLOCALE="0")
    assert found["TERM"]["state"] == "problem"
    assert "my\\x1bterm" in found["TERM"]["found"]
    _, found = await run_doctor(path, TERM="dumb")
    assert found["TERM"]["state"] == "missing"


async def test_check_that_fails_becomes_a_result():
    def fails():
        raise RuntimeError("odd\n")

    (failed,) = await runner._run_bounded("x", fails)
    assert failed.found == "could not be checked: RuntimeError: odd"
    assert failed.state == "problem"
    assert await runner._run_bounded("x", lambda: ok("x", "y")) == [ok("x", "y")]


async def test_check_that_hangs_becomes_a_result(autojump_clock):
    (hung,) = await runner._run_bounded("x", runner.AsyncCheck(trio.sleep_forever))
    assert (hung.state, hung.found) == ("problem", "no answer within 3 s")


def test_exhausted_ptys_are_fatal(monkeypatch):
    def none():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "openpty", none)
    found = system.ptys()
    assert found.fatal
    assert found.found == "none can be opened: No space left on device"


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_runtime_directory_must_be_private(monkeypatch, tmp_path, mode):
    tmp_path.chmod(mode)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert paths.runtime().state == ("ok" if mode == 0o700 else "problem")


def test_advice_for_a_shared_runtime_directory_is_to_unset_the_variable(monkeypatch, tmp_path):
    tmp_path.chmod(0o1777)
    (tmp_path / "file").touch()
    for place, found in ((tmp_path, "not yours alone"), (tmp_path / "file", "not a directory")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
        result = paths.runtime()
        assert (result.state, found in result.found) == ("problem", True)
        assert "chmod" not in result.advice
        assert "unset it" in result.advice
