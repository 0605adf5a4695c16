"""Attacks by programs in containers of a real podman: each must fail."""

import contextlib
import os
import signal
import socket
import subprocess
import sys

import pytest

from acpterm.providers.container import ContainerProvider
from acpterm.providers.placeholders import Placeholders
from acpterm.providers.provider import ProviderError
from tests.support.containers import IMAGE, run, shell, start
from tests.support.polling import poll
from tests.support.pools import running_pool

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


async def attack(provider, workspace, line, **more):
    """Run a shell line; return its output."""
    _, text = await run(provider, shell(workspace, line, **more))
    return text


@pytest.fixture
def victim():
    """Run a process of the host that a container must not reach."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


@pytest.fixture
def repository(workspace):
    """Make a repository of the workspace, and configuration of an agent in it."""
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / ".git" / "config").write_text("[core]\n")
    (workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (workspace / ".claude").mkdir()
    (workspace / ".claude" / "settings.json").write_text("{}")
    (workspace / ".envrc").write_text("")
    return workspace


async def test_files_outside_the_workspace_do_not_exist(provider, workspace, tmp_path):
    (tmp_path / "other").write_text("of another project")
    secrets = [tmp_path / "other", "/root/.ssh", "/home", "/etc/shadow", "/etc/ssh", "/run/user"]
    line = "; ".join(f"ls -A {path}" for path in secrets)
    text = await attack(provider, workspace, line)
    assert text.count("No such file or directory") == len(secrets)
    assert await attack(provider, workspace, f"ls {tmp_path}") == f"{workspace.name}\n"


async def test_link_in_the_workspace_leads_nowhere(provider, workspace, tmp_path):
    (tmp_path / "secret").write_text("the secret")
    (workspace / "link").symlink_to("../secret")
    text = await attack(provider, workspace, "cat link; echo over >link; echo over >../secret")
    assert "the secret" not in text
    assert (tmp_path / "secret").read_text() == "the secret"


async def test_image_and_the_rest_of_the_file_system_are_read_only(provider, workspace):
    line = "for x in /x /bin/x /etc/x /proc/sys/x /sys/x; do (: >$x) && echo $x; done 2>/dev/null"
    assert await attack(provider, workspace, line) == ""
    line = ": >/tmp/x && echo '#!/bin/sh' >/tmp/y && chmod +x /tmp/y && /tmp/y && echo done"
    assert await attack(provider, workspace, line) == "done\n"


async def test_daemons_sockets_cannot_be_reached(provider, workspace, tmp_path):
    abstract = f"\0acpterm-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX) as path, socket.socket(socket.AF_UNIX) as name:
        path.bind(str(tmp_path / "user.sock"))
        name.bind(abstract)
        path.listen()
        name.listen()
        line = f"ls {tmp_path}; nc local:{tmp_path}/user.sock </dev/null; cat /proc/net/unix"
        text = await attack(provider, workspace, line)
    assert "user.sock\n" not in text
    assert abstract[1:] not in text
    assert "acpterm" not in text.partition("Inode Path")[2]


async def test_workspace_with_the_daemons_socket_is_refused(provider, workspace):
    hidden = [str(workspace / "state" / "user.sock")]
    with pytest.raises(ProviderError, match=r"user\.sock"):
        await provider.prepare(shell(workspace, "true", hidden=hidden))


@pytest.mark.parametrize("path", ["/", "/root", "/etc", "/proc", "/nowhere"])
async def test_directory_that_cannot_be_a_workspace_is_refused(provider, path):
    with pytest.raises(ProviderError, match=path):
        await provider.prepare(shell(path, "true"))


async def test_network_is_off_unless_it_is_allowed(provider, workspace):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        line = f"nc -w 2 127.0.0.1 {port} </dev/null && echo connected; tail -n +3 /proc/net/dev"
        text = await attack(provider, workspace, line)
    assert "connected" not in text
    assert [one.split(":")[0].strip() for one in text.splitlines() if ":" in one][-1:] == ["lo"]
    assert "eth" not in text


async def test_processes_of_the_host_are_neither_visible_nor_reachable(provider, workspace, victim):
    line = (
        f"ls /proc/{victim.pid}/root /proc/{victim.pid}/fd; kill -9 {victim.pid}; "
        f"kill -9 -1; ls -d /proc/[0-9]* | wc -l"
    )
    text = await attack(provider, workspace, f"(trap '' TERM; {line}); echo survived")
    assert text.count("No such") >= 3
    assert victim.poll() is None


async def test_keeper_and_engine_cannot_be_signalled(provider, workspace):
    """All processes that can be signalled are those of the container."""
    text = await attack(provider, workspace, "kill -9 1; kill -TERM 1; echo $?; ls -d /proc/[0-9]*")
    first, *found = text.split()
    assert first == "0"
    assert len(found) <= 4


async def test_programs_have_no_capabilities_and_gain_none(provider, workspace):
    binary = workspace / "setuid"
    text = await attack(
        provider,
        workspace,
        f"cp /bin/busybox {binary}; chmod 4755 {binary}; "
        "grep -E '^(Cap(Eff|Bnd|Amb|Prm)|NoNewPrivs|Seccomp):' /proc/self/status",
    )
    found = dict(line.split(":\t") for line in text.splitlines())
    assert {found.pop(f"Cap{name}") for name in ("Eff", "Bnd", "Amb", "Prm")} == {"0" * 16}
    assert found == {"NoNewPrivs": "1", "Seccomp": "2"}


@pytest.mark.parametrize(
    "line",
    [
        "mount -t tmpfs none /tmp",
        "mount -o remount,rw /",
        "mount --bind /proc /tmp",
        "umount /proc/sys",
        "unshare -r true",
        "unshare -m true",
        "chroot / true",
        "mknod /tmp/disk b 8 0",
        "chown 1:1 /tmp",
        "hostname evil",
        "nsenter -t 1 -m true",
        "ip link add dummy type dummy",
        "echo 1 >/proc/sys/kernel/core_pattern",
        "echo b >/proc/sysrq-trigger",
        "echo 1 >/sys/fs/cgroup/cgroup.procs",
        "ls /dev/mem /dev/kmsg /dev/vda /dev/sda",
        "dmesg",
    ],
)
async def test_privileged_operation_fails(provider, workspace, line):
    status, text = await run(provider, shell(workspace, f"{line} >out 2>&1"))
    assert status.code != 0, text


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        ".git/config",
        ".git/commondir",
        ".claude/settings.json",
        ".envrc",
        ".vscode/tasks.json",
        ".codex/config.toml",
        ".mcp.json",
    ],
)
async def test_files_that_configure_programs_outside_cannot_be_changed(provider, repository, path):
    before = {p: p.read_bytes() for p in repository.rglob("*") if p.is_file()}
    text = await attack(
        provider,
        repository,
        f"exec </dev/null; mkdir -p {path.rpartition('/')[0] or '.'}; echo evil >{path}; "
        f"rm -rf {path}; ln -sf /tmp {path}; mv {path} moved; echo evil >other; "
        f"mv -f other {path}; rm -f other moved",
    )
    assert {p: p.read_bytes() for p in repository.rglob("*") if p.is_file()} == before, text


async def test_directory_of_protected_files_cannot_be_replaced(provider, repository):
    line = "exec </dev/null; mv .git old; mv .claude old; rm -rf .git .claude; mkdir .git; ls -A"
    await attack(provider, repository, line)
    assert sorted(path.name for path in repository.iterdir()) == [".claude", ".envrc", ".git"]
    assert sorted(path.name for path in (repository / ".git").iterdir()) == ["config", "hooks"]


async def test_git_may_still_write_its_objects(provider, repository):
    await attack(provider, repository, "mkdir .git/objects && >.git/index && echo ok >file")
    assert (repository / ".git" / "index").exists()
    assert (repository / "file").read_text() == "ok\n"


async def test_protected_name_that_is_a_link_is_refused(provider, workspace):
    """Otherwise the next container would mount what the link of an earlier one names."""
    await attack(provider, workspace, "mkdir -p sub && ln -s /root/.ssh sub/.claude")
    with pytest.raises(ProviderError, match="symbolic link"):
        await provider.prepare(shell(workspace / "sub", "ls .claude"))


async def test_placeholders_stay_while_another_container_uses_them(provider, workspace):
    """The lock is held by the container's engine, so it also holds after the worker was killed."""
    async with running_pool() as pool:
        line = "echo ready; read _; mkdir -p .claude/x || echo refused; exit"
        terminal, token = await start(provider, pool, shell(workspace, line))
        await poll(lambda: "ready" in terminal.text.text())
        # Another worker, which does not know of that terminal, cleans up another one.
        other = ContainerProvider("podman", IMAGE, placeholders=Placeholders())
        await run(other, shell(workspace, "true"))
        terminal.keyboard.type(b"\r")
        await terminal.wait_exited()
        assert "refused" in terminal.text.text()
    await provider.clean_up(token)
    assert list(workspace.iterdir()) == []


async def test_terminal_of_the_container_is_its_own(provider, workspace):
    """A program could push input into a terminal of the host (TIOCSTI), if it had one."""
    text = await attack(provider, workspace, "tty; ls /dev/pts; ls -l /proc/self/fd/0 /dev/tty")
    assert text.split()[:3] == ["/dev/pts/0", "0", "ptmx"]


async def test_engine_cannot_be_reached_from_a_container(provider, workspace):
    line = "ls /run/podman /var/run/docker.sock /run/docker.sock /run/user; cat /proc/1/environ"
    text = await attack(provider, workspace, line)
    assert text.count("No such file") >= 3
    assert "CONTAINERS_STORAGE_CONF" not in text


async def test_daemon_is_not_traced_from_a_container(provider, workspace):
    """A pid of the host means nothing in a container, even if a program guesses it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        line = f"cat /proc/{process.pid}/mem /proc/{process.pid}/environ /proc/{process.pid}/maps"
        text = await attack(provider, workspace, line)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
    assert text.count("No such file") == 3
