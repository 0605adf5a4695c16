"""What a child does between fork and exec: each test forks one, with a pipe as its terminal."""

import os
import resource
import signal

import pytest

from acpterm.pty.child import become, candidates, reset_signals
from acpterm.pty.program import Program
from tests.support.signals import blocked_or_ignored

# What Python 3.12 and later say of a fork where other tests have left idle threads.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def program(*argv, **more):
    fields = {"env": {"PATH": "/usr/bin:/bin"}, "cwd": "/", "umask": 0o22, **more}
    return Program(list(argv), **fields)


def run(what, before=lambda: None):
    """Fork a child that becomes `what`: what it wrote, and its exit code."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(writes, 1)
            os.dup2(writes, 2)
            before()
            become(what)
        finally:
            os._exit(99)
    os.close(writes)
    with open(reads, "rb") as pipe:
        output = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    return output, os.waitstatus_to_exitcode(status)


def script(path, text, mode=0o755):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_name_with_a_slash_is_itself():
    assert candidates("./tool", {"PATH": "/a"}) == ["./tool"]
    assert candidates("/bin/tool", {}) == ["/bin/tool"]


def test_a_bare_name_is_looked_for_along_the_path_of_the_environment():
    assert candidates("tool", {"PATH": "/a:/b"}) == ["/a/tool", "/b/tool"]


def test_an_empty_part_of_the_path_is_the_working_directory():
    assert candidates("tool", {"PATH": ":/b:"}) == ["./tool", "/b/tool", "./tool"]


def test_without_a_path_the_systems_default_is_taken():
    assert candidates("tool", {}) == [f"{folder}/tool" for folder in os.defpath.split(":")]


def test_arguments_arrive_as_they_are():
    words = ["$HOME", "*", "a  b", "c\nd", "", "'\"\\", "é→🙂"]
    output, code = run(program("printf", "<%s>", *words))
    assert (output, code) == ("".join(f"<{word}>" for word in words), 0)


def test_the_environment_is_exactly_what_is_given():
    output, _ = run(program("/usr/bin/env", env={"A": "1", "B": "x y"}))
    assert sorted(output.splitlines()) == ["A=1", "B=x y"]


def test_the_program_runs_in_its_folder_and_with_its_umask(tmp_path):
    output, _ = run(program("sh", "-c", "pwd; umask", cwd=str(tmp_path), umask=0o27))
    assert output == f"{tmp_path}\n0027\n"


def test_limits_are_taken_over():
    limit = (resource.RLIMIT_CORE, 0, 0), (resource.RLIMIT_NOFILE, 64, 128)
    output, _ = run(program("sh", "-c", "ulimit -c; ulimit -Sn; ulimit -Hn", rlimits=limit))
    assert output == "0\n64\n128\n"


def test_a_limit_above_ours_becomes_the_nearest_that_we_may_set():
    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (50, 100))
        os.setgroups([])
        os.setresuid(65534, 65534, 65534)

    if os.geteuid():
        pytest.skip("whether a limit may be raised is tested as root, who gives that up")
    limit = ((resource.RLIMIT_NOFILE, 80, 200),)
    output, _ = run(program("sh", "-c", "ulimit -Sn; ulimit -Hn", rlimits=limit), lower)
    assert output == "80\n100\n"


def test_a_program_that_is_not_there_is_127_and_is_named():
    output, code = run(program("no-such-program"))
    assert code == 127
    assert output == "acpterm: no-such-program: command not found\n"


@pytest.mark.parametrize("what", ["mode", "folder"])
def test_what_is_there_and_cannot_be_run_is_126_and_is_named(tmp_path, what):
    path = tmp_path / "tool"
    if what == "mode":
        script(path, "#!/bin/sh\n", 0o644)
    else:
        path.mkdir()
    output, code = run(program(str(path)))
    assert code == 126
    assert output.startswith(f"acpterm: {path}: cannot be run: ")


def test_a_later_folder_of_the_path_is_tried_when_an_earlier_ones_file_cannot_be_run(tmp_path):
    script(tmp_path / "a" / "tool", "#!/bin/sh\necho a\n", 0o644)
    script(tmp_path / "b" / "tool", "#!/bin/sh\necho b\n")
    path = f"{tmp_path}/none:{tmp_path}/a:{tmp_path}/b"
    assert run(program("tool", env={"PATH": path})) == ("b\n", 0)


def test_a_missing_interpreter_is_126_and_is_named_and_nothing_else_is_run(tmp_path):
    path = script(tmp_path / "tool", "#!/no/such/interpreter -x\necho ran\n")
    output, code = run(program(path, otherwise=["/bin/sh", "-c", "echo otherwise"]))
    assert code == 126
    interpreter = "/no/such/interpreter -x"
    message = f"acpterm: {path}: cannot be run: its interpreter {interpreter} is not there\n"
    assert output == message


def test_a_script_that_names_no_interpreter_is_run_by_the_shell(tmp_path):
    path = script(tmp_path / "tool", 'echo "$0" "$1"\n')
    assert run(program(path, "a b")) == (f"{path} a b\n", 0)


def test_the_other_program_is_run_only_when_there_is_no_such_file(tmp_path):
    other = ["/bin/sh", "-c", "echo other"]
    assert run(program(str(tmp_path / "none"), otherwise=other)) == ("other\n", 0)
    there = script(tmp_path / "tool", "#!/bin/sh\necho tool\n")
    assert run(program(there, otherwise=other)) == ("tool\n", 0)
    refused = script(tmp_path / "refused", "#!/bin/sh\n", 0o644)
    output, code = run(program(refused, otherwise=other))
    assert code == 126
    assert "other\n" not in output


def test_a_folder_that_is_gone_by_now_is_126_and_is_named(tmp_path):
    output, code = run(program("pwd", cwd=str(tmp_path / "gone")))
    assert code == 126
    assert str(tmp_path / "gone") in output
    assert "working directory" in output


def test_whatever_goes_wrong_ends_the_child_with_a_message():
    output, code = run(program("a\0b"))
    assert code == 126
    assert "cannot be started" in output


def test_signals_are_put_at_their_defaults_and_unblocked():
    def ignore_and_block():
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGCHLD, signal.SIGRTMIN + 3):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])

    def ignore_block_and_reset():
        ignore_and_block()
        reset_signals()

    look = program("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    assert blocked_or_ignored(run(look, ignore_and_block)[0])
    assert not blocked_or_ignored(run(look, ignore_block_and_reset)[0])
