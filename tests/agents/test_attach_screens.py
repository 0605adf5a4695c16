"""`acpterm attach`: main and alternate screen, and windows larger than the terminal."""

import pytest

from tests.support.polling import poll_blocking
from tests.support.starting import ACPTERM
from tests.support.tmux import needs_tmux
from tests.support.windows import DETACH

pytestmark = needs_tmux

OURS = " ".join(ACPTERM)
# Enters the alternate screen at once, and leaves it when a key is pressed.
SHOWN = "full screen"
FULL = f"printf '\\e[?1049h\\e[2J\\e[3;5H{SHOWN}'; read -rsn1; printf '\\e[?1049l'"


def shell_with_lines(windows):
    shell = windows.shell()
    shell.line("clear; seq 101 110")
    shell.until("110\nhere$")
    return shell


def until_full_screen(windows, name):
    """Wait until a terminal shows the program's alternate screen."""

    def shows():
        rows = windows.daemon.request("terminal/screen", terminalId=name)["rows"]
        return any(SHOWN in row for row in rows)

    poll_blocking(shows)


def lines_before(pane, line):
    """Return the text of a window before a line."""
    return pane.text.split(line)[0].split("\n")


@pytest.mark.parametrize("command", ["attach {name}", "attach -r {name}"])
@pytest.mark.long
def test_window_is_restored_when_detached_from_a_full_screen_program(windows, command):
    name = windows.daemon.create("bash", "-c", f"printf 'on the main screen'; {FULL}")
    until_full_screen(windows, name)
    shell = shell_with_lines(windows)
    shell.line(f"{OURS} {command.format(name=name)}")
    shell.until(f"    {SHOWN}")
    shell.keys(DETACH)
    shell.until(f"[{name} runs on]")
    assert lines_before(shell, "here$ ") == [*map(str, range(101, 111)), ""]
    assert SHOWN not in shell.history()
    assert "on the main screen" not in shell.history()
    shell.line("echo after")
    shell.until("\nafter\nhere$")
    assert shell.modes == {}


@pytest.mark.long
def test_window_is_restored_when_a_full_screen_program_exits(windows):
    """`acpterm run` waits for it to show its screen: see `tests.host.test_windows`."""
    # vim moves the cursor down on the main screen before it ends.
    name = windows.daemon.create("bash", "-c", f"{FULL}; printf '\\e[24;1H\\r\\n'")
    until_full_screen(windows, name)
    shell = shell_with_lines(windows)
    shell.line(f"{OURS} attach {name}; echo status $?")
    shell.until(f"    {SHOWN}")
    shell.keys("q")
    shell.until("status 0")
    assert lines_before(shell, "here$ ") == [*map(str, range(101, 111)), ""]
    assert SHOWN not in shell.history()


@pytest.mark.long
def test_main_screen_is_painted_when_a_program_leaves_the_alternate_one(windows):
    again = f"echo first; {FULL}; echo second; read -rsn1; {FULL}; exec sleep 1000"
    name = windows.daemon.create("bash", "-c", again)
    shell = shell_with_lines(windows)
    shell.line(f"{OURS} attach {name}")
    shell.until(f"    {SHOWN}")
    shell.keys("x")
    shell.until(lambda: shell.text.startswith("first\nsecond"))
    shell.until(lambda: shell.modes == {})
    # The previous content is in the scrollback.
    assert "\n110\nhere$" in shell.history()
    shell.keys("x")
    shell.until(f"    {SHOWN}")
    shell.keys("x")
    shell.until(lambda: shell.text.startswith("first\nsecond"))
    shell.keys(DETACH)
    shell.until(f"[{name} runs on]")
    assert "\n110\nhere$" in shell.history()


@pytest.mark.long
def test_window_is_not_scrolled_when_attach_fails(windows):
    shell = windows.shell()
    inside = windows.daemon.create("bash", "--norc", "--noprofile")
    shell.line("clear; echo before")
    shell.until("before\nhere$")
    identifier = windows.daemon.info(inside)["terminalId"]
    shell.line(f"ACPTERM_TERMINAL_ID={identifier} {OURS} attach {inside}")
    shell.until(lambda: "cannot be attached to itself" in shell.history())
    assert shell.text.startswith("before\nhere$")


@pytest.mark.long
def test_terminal_inside_of_another_is_mentioned(windows):
    outer = windows.daemon.create("bash", "--norc", "--noprofile")
    inner = windows.daemon.create("bash", "-c", "printf inner; exec sleep 1000")
    pane = windows.attach(outer, size=(100, 24), log=True)
    pane.line(f"ACPTERM_DETACH_KEY=C-] {OURS} attach {inner}")
    notice = f"[{inner}, inside of {outer}: C-] leaves it, unless that key leaves {outer} first]"
    pane.until(lambda: pane.has_printed(notice))
    pane.keys("C-]")
    pane.until(f"[{inner} runs on]")
    pane.line(f"{OURS} attach {outer}")
    pane.until(lambda: "cannot be attached to itself" in pane.history())


@pytest.mark.long
def test_terminal_is_not_attached_to_itself_when_the_environment_does_not_name_it(windows):
    outer = windows.daemon.create("bash", "--norc", "--noprofile")
    pane = windows.attach(outer, size=(100, 24))
    pane.line(f"env -u ACPTERM_TERMINAL_ID {OURS} attach {outer}")
    pane.until(lambda: "cannot be attached to itself" in pane.history())


@pytest.mark.long
def test_larger_window_has_dots_outside_of_the_terminal(windows):
    name = windows.daemon.create("bash", "-c", "printf 'one\\n\\e[2;19HXY'; read; read")
    small = windows.attach(name, size=(20, 4))
    small.until("XY")
    large = windows.attach(name, size=(24, 6))
    dots = "·" * 24
    large.until(
        lambda: (
            large.screen()
            == [
                f"one{'':17}····",
                f"{'':18}XY····",
                f"{'':20}····",
                f"{'':20}····",
                dots,
                dots,
            ]
        )
    )
    small.keys(DETACH)
    small.ended()
    large.until(lambda: "·" not in large.text)
