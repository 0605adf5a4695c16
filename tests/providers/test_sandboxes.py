"""Sandboxes run programs as terminals do, are cleaned up, and refuse if they cannot be set up."""

import os
import shutil
import subprocess
import sys
import tempfile

import pytest
import trio

import acpterm
from acpterm.providers import landlock_exec, placeholders, sandbox_trial
from acpterm.providers.bubblewrap import BubblewrapProvider, Tools, prepared_command
from acpterm.providers.landlock import LandlockProvider
from acpterm.providers.provider import NAMES, ProviderError
from acpterm.providers.registry import make
from acpterm.terminal.status import EndedBy
from tests.support import sandboxes
from tests.support.bounded import as_user
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.sandboxes import ran, script, started

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


async def test_program_runs_in_the_workspace(sandbox, place):
    code, text = await ran(sandbox, script(place, "pwd; echo x > src/new; cat src/new; exit 7"))
    assert (code, text) == (7, f"{place.workspace}\nx\n")


async def test_private_tmp_is_writable_and_removed(sandbox, place):
    line = "echo x > $TMPDIR/new && mkdir -p $TMPDIR/a/b && chmod 0 $TMPDIR/a && echo $TMPDIR"
    code, text = await ran(sandbox, script(place, line))
    assert code == 0
    tmpdir = text.strip()
    assert not os.path.exists(os.path.join(tmpdir, "new"))  # noqa: ASYNC240
    assert tmpdir == "/tmp" or not os.path.exists(tmpdir)  # noqa: ASYNC240


@pytest.mark.parametrize("fallback", [None, ["/bin/sh", "-c", "echo fallback $0; exit 4", "b c"]])
async def test_missing_program_is_reported_or_falls_back(sandbox, place, fallback):
    command = place.command("no-such-program", fallback_argv=fallback)
    expected = (127, "acpterm: no-such-program: command not found\n")
    if fallback is not None:
        expected = (4, "fallback b c\n")
    assert await ran(sandbox, command) == expected


async def test_existing_program_is_executed_despite_a_fallback(sandbox, place):
    fallback = ["/bin/sh", "-c", "echo wrong"]
    command = place.command("printf", "%s-%s", "a b", "*", fallback_argv=fallback)
    assert await ran(sandbox, command) == (0, "a b-*")


async def test_unexecutable_file_is_reported(sandbox, place):
    (place.workspace / "plain").write_text("x")
    for name in (str(place.workspace / "plain"), str(place.workspace / "src")):
        code, text = await ran(sandbox, place.command(name))
        assert (code, text) == (126, f"acpterm: {name}: cannot be run: Permission denied\n")


async def test_program_without_its_interpreter_is_reported(sandbox, place):
    path = place.workspace / "script"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    code, text = await ran(sandbox, place.command(str(path)))
    assert code == 126
    assert str(path) in text


async def test_death_by_a_signal_is_an_exit_code_in_bubblewrap_only(bubblewrap, landlock, place):
    command = script(place, "kill -KILL $$")
    assert (await ran(bubblewrap, command))[0] == 128 + 9
    async with started(landlock, command) as terminal:
        status = await terminal.wait_exited()
        assert (status.code, status.signal) == (None, "SIGKILL")


async def test_program_handles_ctrl_c(sandbox, place):
    line = "trap 'echo handled; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    async with started(sandbox, script(place, line)) as terminal:
        await poll(lambda: "ready" in terminal.text.text())
        terminal.keyboard.type(b"\x03")
        status = await terminal.wait_exited()
        assert status.code == 5
        assert "handled" in terminal.text.text()


async def test_kill_lets_the_program_end_itself(sandbox, place):
    line = "trap 'echo cleaned; exit 6' TERM; echo ready; while :; do sleep 0.05; done"
    async with started(sandbox, script(place, line)) as terminal:
        await poll(lambda: "ready" in terminal.text.text())
        terminal.kill(EndedBy.USER)
        status = await terminal.wait_exited()
        assert "cleaned" in terminal.text.text()
        assert status.code == 6


async def test_job_control_works(sandbox, place):
    is_foreground = (
        "read -r _ _ _ _ group _ _ foreground _ </proc/$$/stat; test $group = $foreground"
    )
    job = f"until {is_foreground}; do :; done; echo ready; exec sleep 1000"
    line = f"set -m; sleep 0.01 & wait; sh -c '{job}' & fg %1"
    async with started(sandbox, place.command("bash", "-c", line)) as terminal:
        await poll(lambda: "ready\n" in terminal.text.text())
        terminal.keyboard.type(b"\x03")
        status = await terminal.wait_exited()
        assert status.code == 130


async def test_terminal_is_the_controlling_terminal(sandbox, place):
    line = "echo to-tty > /dev/tty; stty size; test -t 0 && tty"
    code, text = await ran(sandbox, script(place, line))
    assert code == 0
    assert text.splitlines()[:2] == ["to-tty", "40 200"]
    assert text.splitlines()[2].startswith("/dev/")


@pytest.mark.parametrize("program", ["script -qec 'echo inside; tty' /dev/null", "tmux"])
async def test_programs_can_open_terminals_in_bubblewrap_only(bubblewrap, landlock, place, program):
    if program == "tmux":
        program = "tmux -L x new-session 'tty > src/out' && cat src/out"
    code, text = await ran(bubblewrap, script(place, f"TERM=xterm {program}"))
    assert (code, "/dev/pts/0" in text) == (0, True), text
    code, _ = await ran(landlock, script(place, f"TERM=xterm {program}"))
    assert code != 0


async def test_background_process_lives_as_long_as_the_terminal(sandbox, place):
    line = "trap '' HUP; (while :; do date +%N > src/beat; sleep 0.02; done) & echo $!"
    async with started(sandbox, script(place, line)) as terminal:
        status = await terminal.wait_exited()
        assert status.code == 0
        beat = place.workspace / "src" / "beat"
        await poll(beat.exists)
        before = beat.read_text()
        await poll(lambda: beat.read_text() not in ("", before))
    (place.workspace / "src" / "beat").write_text("ended")
    assert beat.read_text() == "ended"


async def test_placeholders_are_removed_with_the_last_terminal(bubblewrap, place):
    line = script(place, "sleep 1000")
    async with started(bubblewrap, line):
        async with started(bubblewrap, line):
            assert (place.workspace / ".envrc").is_dir()
        assert (place.workspace / ".envrc").is_dir()
        # Another worker, which has not prepared the sandbox, finds it locked.
        await poll(lambda: placeholders._is_locked(str(place.workspace)))
        await BubblewrapProvider().clean_up(f"00000000:{place.workspace}")
        assert (place.workspace / ".envrc").is_dir()
    assert sorted(os.listdir(place.workspace)) == [".git", "src"]
    assert not (place.workspace / ".git" / "commondir").exists()


async def test_landlock_cannot_remove_the_placeholders_of_bubblewrap(bubblewrap, landlock, place):
    """The kernel removes a mount with the directory that it covers."""
    shutil.rmtree(place.workspace / ".git")
    line = "echo ready; read x; echo evil > .envrc"
    async with started(bubblewrap, script(place, line)) as terminal:
        await poll(lambda: "ready" in terminal.text.text())
        code, _ = await ran(landlock, script(place, "rmdir .envrc"))
        assert code != 0
        terminal.keyboard.type(b"\n")
        assert (await terminal.wait_exited()).code != 0
        assert (place.workspace / ".envrc").is_dir()


async def test_files_of_the_user_are_no_placeholders(bubblewrap, place):
    (place.workspace / ".vscode").mkdir()
    async with started(bubblewrap, script(place, "sleep 1000")):
        (place.workspace / ".envrc" / "user").write_text("x")
    assert sorted(os.listdir(place.workspace)) == [".envrc", ".git", ".vscode", "src"]


@pytest.mark.parametrize("name", [".git", ".vscode"])
async def test_workspace_with_a_protected_symbolic_link_is_refused(sandbox, place, name):
    shutil.rmtree(place.workspace / ".git")
    (place.workspace / name).symlink_to("src")
    with pytest.raises(ProviderError, match=rf"{name} is a symbolic link"):
        await sandbox.prepare(script(place, "true"))
    assert sorted(os.listdir(place.workspace)) == sorted(["src", name])


async def test_workspace_that_contains_the_home_directory_is_refused(sandbox, place, monkeypatch):
    monkeypatch.setenv("HOME", str(place.home))
    for workspace in (str(place.home), str(place.root), "/", "/usr/lib", "/tmp"):
        for requested in (str(place.home), "/nonexistent", ""):
            command = place.command("true", workspace=workspace, env={"HOME": requested})
            with pytest.raises(ProviderError, match=r"session's directory"):
                await sandbox.prepare(command)


async def test_repository_of_a_worktree_is_read_only(sandbox, place):
    main = place.outside / "main"
    await _git(place.outside, "init", "-q", str(main))
    await _git(main, *_AUTHOR, "commit", "-q", "--allow-empty", "-m", "x")
    shutil.rmtree(place.workspace)
    await _git(main, "worktree", "add", "-q", str(place.workspace))
    before = sorted(os.listdir(main / ".git" / "hooks"))
    line = "git status -s && echo x > .git; echo evil > $(git rev-parse --git-common-dir)/hooks/x"
    await ran(sandbox, script(place, line))
    assert (place.workspace / ".git").read_text().startswith("gitdir: ")
    assert sorted(os.listdir(main / ".git" / "hooks")) == before


_NOBODY = 65534
_AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b")


async def _git(directory, *arguments):
    await trio.run_process(["git", *arguments], cwd=directory)


async def test_workspace_in_tmp_is_the_only_thing_there(bubblewrap, tmp_path):
    (tmp_path / "beside").write_text("x")
    (tmp_path / "workspace").mkdir()
    with sandboxes.place() as place:
        here = place._replace(workspace=tmp_path / "workspace")
        line = f"ls -A {tmp_path}; ls /tmp; echo x > new"
        code, text = await ran(bubblewrap, script(here, line))
        assert (code, text) == (0, f"workspace\n{tmp_path.parts[2]}\n")
    assert os.listdir(tmp_path / "workspace") == ["new"]


async def test_nothing_runs_without_bwrap(place, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProviderError, match="apt-get install bubblewrap"):
        await BubblewrapProvider().prepare(script(place, "true"))


async def test_failure_is_tried_again_and_success_is_remembered(place, monkeypatch, tmp_path):
    count = tmp_path / "count"
    real = shutil.which("bwrap")
    broken = tmp_path / "bin" / "bwrap"
    broken.parent.mkdir()
    broken.write_text(f'#!/bin/sh\necho >> {count}\ntest -e {tmp_path}/ok && exec {real} "$@"\n')
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
    provider = BubblewrapProvider()
    for _ in range(2):
        with pytest.raises(ProviderError, match="nothing is run"):
            await provider.prepare(script(place, "true"))
    assert len(count.read_text()) == 2
    (tmp_path / "ok").touch()
    for _ in range(3):
        prepared = await provider.prepare(script(place, "true"))
        await provider.clean_up(prepared.token)
    assert len(count.read_text()) == 4  # one of them for the version
    broken.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(ProviderError):
        await provider.prepare(script(place, "true"))


_CHECK = """
import sys, trio
sys.path[:0] = sys.argv[2:]
from acpterm.providers.provider import ProviderError
from acpterm.providers.registry import make
try:
    print("works", trio.run(make(sys.argv[1]).check))
except ProviderError as error:
    print("refused", error)
"""


def _check(name, *prefix):
    words = [*prefix, sys.executable, "-c", _CHECK, name, *filter(None, sys.path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd="/")
    return done.stdout.partition(" ")


async def test_a_socket_that_is_removed_during_a_trial_is_not_hidden(bubblewrap, monkeypatch):
    found = iter([["/usr/gone.sock"]])
    monkeypatch.setattr("acpterm.providers.bubblewrap.listening_sockets", lambda: next(found, []))
    assert "bubblewrap" in await bubblewrap.check()


async def test_a_socket_that_cannot_be_hidden_fails_a_trial(bubblewrap, monkeypatch):
    found = iter(range(9))
    monkeypatch.setattr(
        "acpterm.providers.bubblewrap.listening_sockets", lambda: [f"/usr/gone-{next(found)}.sock"]
    )
    with pytest.raises(ProviderError, match="Read-only file system"):
        await bubblewrap.check()
    assert next(found) < 5


def test_bubblewrap_refuses_where_user_namespaces_are_forbidden():
    no_namespaces = ["bwrap", "--unshare-user", "--disable-userns", "--dev-bind", "/", "/"]
    result, _, message = _check("bubblewrap", *no_namespaces)
    assert result == "refused", message
    assert "so nothing is run" in message


def test_landlock_works_where_user_namespaces_are_forbidden():
    no_namespaces = ["bwrap", "--unshare-user", "--disable-userns", "--dev-bind", "/", "/"]
    result, _, message = _check("landlock", *no_namespaces)
    assert result == "works", message


def test_landlock_works_for_a_normal_user(as_root):
    result, _, message = _check("landlock", *as_user(_NOBODY))
    assert result == "works", message


def test_bubblewrap_works_for_a_normal_user(as_root, bubblewrap, place, monkeypatch):
    # acpterm's own directory may be one that only root may enter.
    (place.root / "py.typed").touch()
    monkeypatch.setattr(acpterm, "__file__", str(place.root / "__init__.py"))
    for directory, _, files in os.walk(place.root):
        for name in (".", *files):
            os.chown(os.path.join(directory, name), _NOBODY, _NOBODY)
    os.chmod(place.root, 0o755)
    line = "cat ~/.ssh/id_ed25519; echo x > .git/hooks/x; echo x > src/new; id -u; cat src/new"
    command = script(place, line)
    os.seteuid(_NOBODY)
    try:
        workspace, token, created = placeholders.Placeholders().protect(command.workspace)
        prepared = prepared_command(command, Tools.find(), workspace, created)
    finally:
        os.seteuid(0)
    user = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
    words = [*user, "--inh-caps=-all", "--bounding-set=-all", *prepared.argv]
    done = subprocess.run(words, env=prepared.env, capture_output=True, text=True, check=False)
    assert done.stdout == f"{_NOBODY}\nx\n", done.stderr
    assert "Read-only file system" in done.stderr
    placeholders.Placeholders().remove(token)
    assert sorted(os.listdir(place.workspace)) == [".git", "src"]


async def test_landlock_refuses_an_old_kernel(landlock, place, monkeypatch):
    monkeypatch.setattr(landlock_exec, "abi", lambda: 5)
    with pytest.raises(ProviderError, match=r"ABI 5, and ABI 6 \(Linux 6.12\) is needed"):
        await LandlockProvider().prepare(script(place, "true"))


async def test_landlock_cleans_up_nothing_but_its_own_directories(landlock, tmp_path):
    link = tmp_path / "acpterm-sandbox-link0000"
    (tmp_path / "target").mkdir()
    link.symlink_to("target")
    for token in (str(tmp_path), str(link), "acpterm-sandbox-x", f"{link}/../target"):
        await landlock.clean_up(token)
    assert sorted(os.listdir(tmp_path)) == [link.name, "target"]


async def test_clean_up_is_idempotent(sandbox, place):
    prepared = await sandbox.prepare(script(place, "true"))
    await sandbox.clean_up(prepared.token)
    await sandbox.clean_up(prepared.token)
    assert sorted(os.listdir(place.workspace)) == [".git", "src"]


async def test_local_changes_nothing(place):
    provider = make("local")
    command = script(place, "true")
    prepared = await provider.prepare(command)
    assert prepared[:4] == (command.argv, None, command.env, command.cwd)
    assert await provider.check()


def test_unknown_provider_is_refused():
    with pytest.raises(ProviderError, match=", ".join(NAMES)):
        make("nothing")


async def test_version_that_cannot_be_printed_is_an_error_of_the_provider(
    place, monkeypatch, tmp_path
):
    real = shutil.which("bwrap")
    broken = tmp_path / "bin" / "bwrap"
    broken.parent.mkdir()
    broken.write_text(f'#!/bin/sh\n[ "$1" != --version ] && exec {real} "$@"\nexit 3\n')
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
    with pytest.raises(ProviderError, match="install the package bubblewrap"):
        await BubblewrapProvider().prepare(script(place, "true"))


async def test_version_has_a_time_limit(place, monkeypatch, tmp_path):
    real = shutil.which("bwrap")
    stuck = tmp_path / "bin" / "bwrap"
    stuck.parent.mkdir()
    stuck.write_text(f'#!/bin/sh\n[ "$1" != --version ] && exec {real} "$@"\nexec sleep 1000\n')
    stuck.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stuck.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(sandbox_trial, "_TIMEOUT_S", 1.0)
    with trio.fail_after(DEADLINE_S):
        with pytest.raises(ProviderError, match="did not end within 1 s"):
            await BubblewrapProvider().prepare(script(place, "true"))


async def test_missing_directory_for_temporary_files_is_an_error_of_the_provider(
    sandbox, place, monkeypatch, tmp_path
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(ProviderError, match="set TMPDIR"):
        await sandbox.prepare(script(place, "true"))


def test_program_that_was_removed_is_an_error_of_the_provider(tmp_path):
    with pytest.raises(ProviderError, match=rf"bubblewrap: {tmp_path}/gone: cannot be run"):
        sandbox_trial.file_identity("bubblewrap", str(tmp_path / "gone"))
