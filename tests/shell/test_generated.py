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
from tests.support.fish import data_home

pytestmark = pytest.mark.long

COUNT = 100 * EXAMPLES if EXAMPLES else 100


async def check(shell, case: Case) -> str:
    """Run a command; return what was wrong, or an empty text."""
    had_terminal = shell.terminal is not None
    done = await shell.run(case.command, timeout=30)
    while done.state == "waiting_for_input":
        # The machine is so busy that a program with a time limit was seen.
        done = await shell.wait(30)
    if done.state != ("shell_ended" if case.ends_shell else "done"):
        return f"state {done.state}: {done.detail}"
    if done.boundary != "exact":
        return f"boundary: {done.detail}"
    code = -1 if done.exit_code is None else done.exit_code
    if code == 0 if case.code is None else code != case.code:
        return f"exit code {code} instead of {case.code}"
    if had_terminal and done.started_new:
        return "a new shell was started for no reason"
    if case.ends_shell:
        text = done.output.encode()
        return "" if text == case.output else f"text {text!r} instead of {case.output!r}"
    if done.cwd != case.cwd:
        return f"directory {done.cwd!r} instead of {case.cwd!r}"
    data = await raw_output(shell)
    if case.output is None or data.replace(b"\r", b"") == case.output.replace(b"\r", b""):
        return ""
    return f"bytes {data!r} instead of {case.output!r}"


async def raw_output(shell) -> bytes:
    """Return the bytes between the marks of the last command."""
    begin, end = shell._running.tracker.span
    data = b""
    while begin + len(data) < end:
        at = begin + len(data)
        read = await shell.terminal.read_raw(at, max_bytes=end - at)
        assert read.data
        data += read.data
    return data


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
@pytest.mark.timeout(60 if not EXAMPLES else 0)
def test_generated_commands_end_exactly(kind, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    for name in DIRECTORIES:
        (home / name).mkdir()
    env = {"HOME": str(home), "XDG_CONFIG_HOME": f"{home}/.config", "LC_ALL": "C.UTF-8",
           "XDG_DATA_HOME": data_home(home)}  # fmt: skip
    seed = int(os.environ.get("ACPTERM_SEED", "1"))
    wrong = []

    async def main(settings: Settings) -> None:
        generator = Generator(kind, seed, str(home))
        async with (
            acpterm.connect(settings=settings) as client,
            client.shell(kind, cwd=str(home), env=env) as shell,
        ):
            for number in range(COUNT):
                case = generator.next()
                problem = await check(shell, case)
                if problem:
                    what = f"{number} {case.what}: {case.command[:300]!r}"
                    wrong.append(f"{what}: {problem[:600]}")
                    await shell.close()
                    generator.restart()

    began = time.monotonic()
    with blocking_daemon(tmp_path) as daemon:
        anyio.run(main, Settings(socket=daemon.socket), backend="trio")
    print(f"{kind}: {COUNT} commands, {len(wrong)} wrong, {time.monotonic() - began:.0f} s")
    print("\n".join(wrong))
    assert not wrong
