"""Generated nasty commands, each with a known exit code, output and directory, in a real daemon.

`ACPTERM_EXAMPLES=100` tries 10,000 commands per shell.
"""

import os
import time

import anyio
import pytest

import acpterm
from acpterm.config import Settings
from tests.shell.nasty import DIRECTORIES, Case, Generator
from tests.support.daemon import blocking_daemon
from tests.support.depth import EXAMPLES

COUNT = 100 * EXAMPLES if EXAMPLES else 100


async def check(shell, case: Case) -> str:
    """Run a command; return what was wrong, or an empty text."""
    terminal = shell.terminal
    done = await shell.run(case.command, timeout=30)
    if done.state != ("shell_ended" if case.ends_shell else "done"):
        return f"state {done.state}: {done.detail}"
    if done.boundary != "exact":
        return f"boundary: {done.detail}"
    code = -1 if done.exit_code is None else done.exit_code
    if code == 0 if case.code is None else code != case.code:
        return f"exit code {code} instead of {case.code}"
    if not case.ends_shell:
        if done.cwd != case.cwd:
            return f"directory {done.cwd!r} instead of {case.cwd!r}"
        begin, end = shell._running.tracker.span
        if case.output is not None:
            data = b""
            while len(data) < end - begin:
                at = begin + len(data)
                read = await shell.terminal.read_raw(at, max_bytes=end - at)
                assert read.data
                data += read.data
            if data.replace(b"\r", b"") != case.output.replace(b"\r", b""):
                return f"bytes {data!r} instead of {case.output!r}"
    elif case.output is not None and done.output.encode() != case.output:
        return f"text {done.output!r} instead of {case.output!r}"
    if terminal and done.started_new:
        return "a new shell was started for no reason"
    return ""


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
@pytest.mark.timeout(60 if not EXAMPLES else 0)
def test_generated_commands_end_exactly(kind, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    for name in DIRECTORIES:
        (home / name).mkdir()
    env = {"HOME": str(home), "XDG_CONFIG_HOME": f"{home}/.config", "LC_ALL": "C.UTF-8",
           "XDG_DATA_HOME": f"{home}/.local"}  # fmt: skip
    seed = int(os.environ.get("ACPTERM_SEED", "1"))
    wrong = []

    async def main(settings: Settings) -> None:
        generator = Generator(kind, seed, str(home))
        async with acpterm.connect(settings=settings) as client:
            async with client.shell(kind, cwd=str(home), env=env) as shell:
                for number in range(COUNT):
                    case = generator.next()
                    problem = await check(shell, case)
                    if problem:
                        what = f"{number} {case.what}: {case.command[:300]!r}"
                        wrong.append(f"{what}: {problem[:600]}")
                        await shell.close()
                        generator._cwd, generator._variable = str(home), None

    began = time.monotonic()
    with blocking_daemon(tmp_path) as daemon:
        anyio.run(main, Settings(socket=daemon.socket), backend="trio")
    print(f"{kind}: {COUNT} commands, {len(wrong)} wrong, {time.monotonic() - began:.0f} s")
    assert wrong == []
