"""What programs in a sandbox try, with real programs, in each sandbox.

A test of both providers has the same result with both. Where they differ, each has its own test,
which states the result that docs/security.md lists.
"""

import os
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
import trio

from tests.support.polling import poll
from tests.support.processes import alive
from tests.support.sandboxes import ran, script, started

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]

# A virtual environment may be below /tmp, which the sandboxes hide; its interpreter usually is not.
PYTHON = os.path.realpath(sys.executable)


def python(place, code, *arguments, **more):
    return place.command(PYTHON, "-I", "-S", "-c", code, *map(str, arguments), **more)


@contextmanager
def victim(*argv):
    """Run a process outside the sandbox, which a program inside attacks."""
    with subprocess.Popen(argv or ["sleep", "1000"]) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def listening(address, family=socket.AF_UNIX):
    """Listen on a socket; yield the socket and a list that gets an item for each connection."""
    with socket.socket(family) as server:
        server.bind(address)
        server.listen()
        accepted = []

        def accept():
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                accepted.append(peer)
                peer.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server, accepted
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


CONNECT = """
import socket, sys
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1].replace("@", chr(0)))
print("connected")
"""


@pytest.mark.parametrize("network", [False, True])
async def test_sockets_of_acpterm_are_unreachable(sandbox, place, network):
    path = str(place.outside / "user.sock")
    with listening(path) as (_, accepted):
        attempt = python(place, CONNECT, path, hidden=[path], network=network)
        code, text = await ran(sandbox, attempt)
        assert (code, accepted) == (1, []), text
        assert "connected" not in text


async def test_socket_that_is_in_no_list_is_unreachable(sandbox, place):
    path = str(place.outside / "some.sock")
    with listening(path) as (_, accepted):
        code, text = await ran(sandbox, python(place, CONNECT, path, network=True))
        assert (code, accepted) == (1, []), text


async def test_abstract_socket_is_unreachable_without_network(sandbox, place):
    name = f"acpterm-tests-{os.getpid()}"
    with listening(f"\0{name}") as (_, accepted):
        code, text = await ran(sandbox, python(place, CONNECT, f"@{name}"))
        assert (code, accepted) == (1, []), text


async def test_abstract_socket_with_network_is_reachable_in_bubblewrap_only(
    bubblewrap, landlock, place
):
    name = f"acpterm-tests-{os.getpid()}"
    with listening(f"\0{name}") as (_, accepted):
        code, _ = await ran(landlock, python(place, CONNECT, f"@{name}", network=True))
        assert (code, accepted) == (1, [])
        code, _ = await ran(bubblewrap, python(place, CONNECT, f"@{name}", network=True))
        assert code == 0


async def test_datagrams_reach_no_unix_socket(sandbox, place):
    path = str(place.outside / "log.sock")
    code = (
        "import socket, sys\n"
        "for kind in socket.SOCK_DGRAM, socket.SOCK_RAW:\n"
        "    try: socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b'x', sys.argv[1])\n"
        "    except OSError as error: print('refused')\n"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        server.setblocking(False)
        _, text = await ran(sandbox, python(place, code, path, network=True))
        assert text.split() == ["refused", "refused"]
        with pytest.raises(BlockingIOError):
            server.recv(1)


TCP = """
import socket, sys
socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
print("connected")
"""


async def test_tcp_is_available_only_with_network(sandbox, place):
    with listening(("127.0.0.1", 0), socket.AF_INET) as (server, accepted):
        port = server.getsockname()[1]
        code, text = await ran(sandbox, python(place, TCP, port))
        assert (code, accepted) == (1, []), text
        code, text = await ran(sandbox, python(place, TCP, port, network=True))
        assert (code, text) == (0, "connected\n")


async def test_udp_leaves_no_sandbox_without_network(sandbox, place):
    send = "import socket, sys; s = socket.socket(2, 2); s.sendto(b'x', ('127.0.0.1', {}))"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        port = server.getsockname()[1]
        await ran(sandbox, python(place, send.format(port)))
        # What is received first comes from the second program.
        code, text = await ran(sandbox, python(place, send.format(port), network=True))
        assert code == 0, text
        assert server.recv(1) == b"x"
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.recv(1)


async def test_secrets_are_unreadable(sandbox, place):
    (place.home / ".netrc").write_text("a-password\n")
    (place.home / "keys").symlink_to(".ssh")
    (place.workspace / "link").symlink_to(place.home / ".ssh" / "id_ed25519")
    attempt = script(
        place,
        "cat ~/.ssh/id_ed25519 ~/.netrc ~/keys/id_ed25519 link",
        "cat /proc/self/root$HOME/.ssh/id_ed25519",
        "cd ~/.ssh && cat id_ed25519",
        "cat ~/notes",
    )
    _, text = await ran(sandbox, attempt)
    assert "a-private-key" not in text
    assert "a-password" not in text
    assert "some-notes" in text


async def test_secret_that_is_a_symbolic_link_is_hidden_at_its_target(sandbox, place):
    (place.outside / "token").write_text("a-token\n")
    (place.home / ".git-credentials").symlink_to(place.outside / "token")
    _, text = await ran(sandbox, script(place, f"cat ~/.git-credentials {place.outside}/token"))
    assert "a-token" not in text


async def test_nothing_outside_the_workspace_is_writable(sandbox, place):
    (place.workspace / "src" / "link").symlink_to(place.outside)
    (place.workspace / "src" / "to-file").symlink_to(place.outside / "file")
    attempt = script(
        place,
        f"echo x > {place.outside}/new",
        f"echo x > {place.outside}/file",
        "echo x > src/link/new",
        "echo x > src/to-file",
        "echo x > ../../outside/new",
        f"echo x > /proc/self/root{place.outside}/new",
        f"rm -f {place.outside}/file",
        f"mv {place.outside}/file src/moved",
        f"ln {place.outside}/file src/hard && echo x > src/hard",
        f"truncate -s 0 {place.outside}/file",
        "echo x >> ~/.bashrc",
        "mkdir ~/.config",
        "echo in > src/in",
    )
    await ran(sandbox, attempt)
    assert os.listdir(place.outside) == ["file"]
    assert (place.outside / "file").read_text() == "unchanged\n"
    assert not (place.home / ".bashrc").exists()
    assert not (place.home / ".config").exists()
    assert (place.workspace / "src" / "in").read_text() == "in\n"


async def test_swapped_symlink_does_not_lead_outside(sandbox, place):
    attempt = script(
        place,
        "mkdir src/a; mv src/a src/b; ln -s ../../../outside src/a; echo x > src/a/new",
        "mkdir -p src/c/d; rm -r src/c; ln -s / src/c; echo x > src/c/etc/acpterm-test",
    )
    await ran(sandbox, attempt)
    assert (place.workspace / "src" / "a").is_symlink()
    assert os.listdir(place.outside) == ["file"]
    assert "acpterm-test" not in os.listdir("/etc")


HOOKS = (
    "echo evil > .git/hooks/pre-commit",
    "mv .git .git2 && mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit",
    "mv .git/hooks .git/old; mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit",
    "rm -rf .git/hooks; mkdir .git/hooks; ln -s ../../src .git/hooks/x",
    "echo '[core] hooksPath = src' >> .git/config",
    "git config core.fsmonitor evil",
    "echo evil > src/config; mv -f src/config .git/config",
    "ln .git/config src/hard && echo evil >> src/hard",
    "ln -sf ../src .git/hooks",
    "mkdir -p src/other/hooks; echo ../src/other > .git/commondir",
    "rm -f .git/commondir; echo ../src/other > .git/commondir",
    "echo evil > .git/config.worktree",
    "cp -r .git src/copy && rm -rf .git; mv src/copy .git; echo evil > .git/hooks/pre-commit",
)


@pytest.mark.parametrize("line", HOOKS)
async def test_hooks_of_the_workspace_cannot_be_changed(sandbox, place, line):
    git = place.workspace / ".git"
    before = (git / "config").read_text(), sorted(os.listdir(git / "hooks")), git.stat().st_ino
    await ran(sandbox, script(place, line))
    after = (git / "config").read_text(), sorted(os.listdir(git / "hooks")), git.stat().st_ino
    assert after == before
    assert not (git / "hooks").is_symlink()
    assert not (git / "commondir").exists()
    # Read by git only if the configuration says so, and that cannot be changed.
    assert "worktreeConfig" not in before[0]


@pytest.mark.parametrize("name", [".envrc", ".claude/settings.json", ".vscode/tasks.json"])
async def test_protected_files_cannot_be_changed(sandbox, place, name):
    path = place.workspace / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("before\n")
    top = name.partition("/")[0]
    attempt = script(
        place,
        f"echo x > {name}; rm -rf {top}; mv {top} gone; mkdir -p {os.path.dirname(name) or '.'}",
        f"echo x > {name}; echo y > src/y; mv -f src/y {name}; ln {name} src/l && echo x > src/l",
    )
    await ran(sandbox, attempt)
    assert path.read_text() == "before\n"
    assert not (place.workspace / "gone").exists()


NEW_FILES = (
    "echo x > .envrc; rmdir .envrc; echo x > .envrc; mv .envrc e; echo x > .envrc",
    "mkdir -p .vscode .claude .husky; echo x > .vscode/tasks.json; echo x > .claude/settings.json",
    "ln -s src .vscode; ln -sf ../src .envrc; mv src .idea",
)


@pytest.mark.parametrize("line", NEW_FILES)
async def test_protected_names_cannot_be_created(sandbox, place, line):
    await ran(sandbox, script(place, line))
    assert sorted(os.listdir(place.workspace)) == [".git", "src"]


async def test_repository_can_be_created_at_the_top_of_a_landlock_workspace_only(
    bubblewrap, landlock, place
):
    shutil.rmtree(place.workspace / ".git")
    attempt = script(place, "git init; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit")
    await ran(bubblewrap, attempt)
    assert os.listdir(place.workspace) == ["src"]
    # Nothing can be excepted from a directory with Landlock, and nothing is there to protect.
    await ran(landlock, attempt)
    assert (place.workspace / ".git" / "hooks" / "pre-commit").read_text() == "evil\n"


async def test_git_commits_in_bubblewrap_only(bubblewrap, landlock, place):
    commit = script(
        place,
        "git add -A && git -c user.name=a -c user.email=a@b commit -qm first && git branch other",
        "git checkout -q other && git status --short && git --no-pager log --format=%s",
    )
    code, text = await ran(landlock, commit)
    assert "index.lock': Permission denied" in text
    (place.workspace / "top").write_text("x\n")
    code, text = await ran(bubblewrap, commit)
    assert (code, text) == (0, "first\n")
    # The placeholders of names that do not exist are not committed.
    tree = ["git", "-C", place.workspace, "ls-tree", "--name-only", "HEAD"]
    assert (await trio.run_process(tree, capture_stdout=True)).stdout == b"top\n"


async def test_processes_outside_get_no_signal(sandbox, place):
    with victim() as process:
        attempt = script(
            place,
            f"kill -9 {process.pid}; kill -TERM {os.getpid()}; kill -9 -{os.getpgid(0)}",
            "kill -0 -1; echo done",
        )
        _, text = await ran(sandbox, attempt)
        assert "done" in text
        assert alive(process.pid)


async def test_processes_outside_cannot_be_inspected(sandbox, place):
    with victim("sleep", "1000") as process:
        code = """
import ctypes, os, sys
pid = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
print("attached" if libc.ptrace(16, pid, 0, 0) == 0 else "refused")
fd = libc.syscall(434, pid, 0)
print("taken" if fd >= 0 and libc.syscall(438, fd, 0, 0) >= 0 else "refused")
for name in "root", "cwd", "fd/0", "environ", "mem", "exe":
    try:
        path = f"/proc/{pid}/{name}"
        os.listdir(path) if name in ("root", "cwd") else open(path, "rb").read(1)
        print("read", name)
    except OSError:
        print("refused")
"""
        _, text = await ran(sandbox, python(place, code, process.pid))
        # The script that is attacked might have ended, and its pid be free.
        assert alive(process.pid)
        expected = ["refused"] * 7
        assert text.split()[:7] == expected
        # The program that a process executes is a file, which may be read.
        assert "read exe" in text or text.split()[7:] == ["refused"]


async def test_command_lines_of_other_processes_are_visible_in_landlock_only(
    bubblewrap, landlock, place
):
    with victim("sleep", "1000.5") as process:
        attempt = script(place, f"tr '\\0' ' ' < /proc/{process.pid}/cmdline")
        assert "1000.5" not in (await ran(bubblewrap, attempt))[1]
        assert "sleep 1000.5" in (await ran(landlock, attempt))[1]


async def test_permissions_of_the_users_files_can_be_changed_in_landlock_only(
    bubblewrap, landlock, place
):
    attempt = script(place, f"chmod 777 {place.outside}/file")
    await ran(bubblewrap, attempt)
    assert (place.outside / "file").stat().st_mode & 0o777 != 0o777
    await ran(landlock, attempt)
    assert (place.outside / "file").stat().st_mode & 0o777 == 0o777


async def test_names_of_secret_files_are_visible_in_landlock_only(bubblewrap, landlock, place):
    attempt = script(place, "ls ~/.ssh")
    assert "id_ed25519" not in (await ran(bubblewrap, attempt))[1]
    assert "id_ed25519" in (await ran(landlock, attempt))[1]


async def test_input_can_be_faked_only_on_the_own_terminal(sandbox, place):
    master, slave = os.openpty()
    try:
        code = """
import fcntl, os, sys, termios
for path in sys.argv[1:]:
    try:
        fcntl.ioctl(os.open(path, os.O_RDWR | os.O_NOCTTY), termios.TIOCSTI, b"x")
        print("faked")
    except OSError as error:
        print("refused")
"""
        own = await ran(sandbox, python(place, code, os.ttyname(slave)))
        assert own == (0, "refused\n")
    finally:
        os.close(master)
        os.close(slave)


async def test_setuid_programs_give_no_privileges(sandbox, place):
    _, text = await ran(
        sandbox,
        script(place, "su -c id nobody; mount -t tmpfs x src; passwd -d root", "id -u"),
    )
    assert text.split()[-1] == str(os.getuid())
    assert "uid=65534" not in text
    status = script(place, "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status")
    found = dict(line.split() for line in (await ran(sandbox, status))[1].splitlines())
    assert int(found["CapEff:"], 16) == 0
    assert found["NoNewPrivs:"] == "1"
    if os.geteuid() == 0:
        assert int(found["CapBnd:"], 16) == 0


MOUNTS = (
    "mount --bind / src",
    "mount -o remount,rw /",
    "mount -o remount,bind,rw /",
    "umount -l .git/hooks",
    "umount -l /tmp; umount -l ~/.ssh",
    "unshare -m true",
    "unshare -rm sh -c 'mount -t tmpfs x src && echo mounted'",
    "unshare -rm sh -c 'umount -l ~/.ssh && cat ~/.ssh/*'",
    "cd src && mkdir old && pivot_root . old",
    "chroot / true",
    "nsenter -t 1 -m true",
    "nsenter -t $PPID -m true",
    "bwrap --bind / / true",
    "bwrap --dev-bind / / sh -c 'echo x > ../../outside/new'",
)


@pytest.mark.parametrize("line", MOUNTS)
async def test_mounts_cannot_be_changed(sandbox, place, line):
    _, text = await ran(sandbox, script(place, f"{line} && echo succeeded"))
    assert "succeeded" not in text
    assert "mounted" not in text
    assert "a-private-key" not in text
    assert os.listdir(place.outside) == ["file"]


async def test_devices_are_out_of_reach(sandbox, place, as_root):
    attempt = script(
        place,
        "for d in mem kmsg kvm vda sda loop0 loop-control fuse vsock userfaultfd; do",
        "  (: < /dev/$d) && echo opened $d",
        "done",
        "mknod src/null c 1 3 && echo made",
        "mknod src/disk b 254 0 && echo made",
        "mknod $TMPDIR/null c 1 3 && echo made",
        "for f in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe \\",
        "  /proc/mtrr /proc/irq/default_smp_affinity /sys/power/state; do",
        "  (: >> $f) && echo opened $f",
        "done",
        "echo x > /dev/null && head -c 1 /dev/urandom > /dev/null && echo works",
    )
    _, text = await ran(sandbox, attempt)
    found = [line for line in text.splitlines() if line.startswith(("opened", "made", "works"))]
    assert found == ["works"]


async def test_loader_variables_do_not_reach_what_sets_the_sandbox_up(sandbox, place):
    source, library = place.workspace / "evil.c", place.workspace / "evil.so"
    source.write_text(
        "#include <fcntl.h>\n"
        f'__attribute__((constructor)) void f() {{ open("{place.outside}/new", O_CREAT, 0600); }}\n'
    )
    await trio.run_process(["cc", "-shared", "-fPIC", "-o", library, source])
    attempt = script(place, "echo $LD_PRELOAD; true", env={"LD_PRELOAD": str(library)})
    code, text = await ran(sandbox, attempt)
    assert (code, text) == (0, f"{library}\n")
    assert os.listdir(place.outside) == ["file"]


async def test_secret_variables_are_removed(sandbox, place):
    secret = {"GH_TOKEN": "x", "AWS_SECRET_ACCESS_KEY": "x", "SSH_AUTH_SOCK": "/x"}
    kept = {"LANG": "C", "KEYBOARD": "de", "EDITOR": "vi"}
    runtime = {"XDG_RUNTIME_DIR": "/run/user/1000", "SOME_SOCKET": "unix:path=/run/x"}
    command = place.command("env", env={**secret, **kept, **runtime})
    _, text = await ran(sandbox, command)
    found = dict(line.split("=", 1) for line in text.splitlines())
    assert not (secret | runtime).keys() & found.keys()
    assert kept.items() <= found.items()
    assert found["ACPTERM_TERMINAL_ID"].startswith("term_")


@pytest.mark.parametrize("tracked", ["setsid", "nohup"])
async def test_no_process_is_left_behind(sandbox, place, tracked):
    pids = []
    run = f"{tracked} {{}} > /dev/null 2>&1 &"
    line = f"{run.format('sleep 1234.5')} {run.format('env -i sleep 1234.5')} sleep 1234.5"

    def sleeping():
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    is_sleep = file.read() == b"sleep\x001234.5\x00"
                if is_sleep and os.readlink(f"/proc/{name}/cwd") == str(place.workspace):
                    found.append(int(name))
            except OSError:
                continue
        return found

    async with started(sandbox, script(place, line)):
        await poll(lambda: len(sleeping()) == 3)
        pids += sleeping()
    assert not any(map(alive, pids))
    assert sleeping() == []
