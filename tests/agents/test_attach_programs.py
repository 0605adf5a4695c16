"""`acpterm attach` with real programs: they look the same as without acpterm."""

import contextlib
import shlex
import shutil
import sys
import unicodedata

import pytest

from tests.support.daemon import blocking_daemon
from tests.support.tmux import needs_tmux
from tests.support.windows import Windows

pytestmark = needs_tmux

BASH = ("bash", "--norc", "--noprofile")
VIM = (
    "vim",
    "-u",
    "NONE",
    "-i",
    "NONE",
    "-N",
    "-n",
    "-c",
    "syntax on",
    "-c",
    # Without `bg`, vim queries the background colour, which tmux does not report.
    "set nu hls ls=2 nosmd bg=dark",
)
TEXT = "".join(
    f"{n:3} def f(x): return 'a string {n}'  # wörds 日本語 and more\n" for n in range(200)
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with blocking_daemon(tmp_path_factory.mktemp("daemon")) as running:
        (running.directory / "text.py").write_text(TEXT)
        yield running


class Both:
    """The same program twice: directly in a window, and in an attached terminal."""

    def __init__(self, windows, *command, size=(70, 18)):
        if shutil.which(command[0]) is None:
            pytest.skip(f"there is no {command[0]}")
        self.bare = windows.bare(*command, size=size, cwd=windows.daemon.directory)
        self.name = windows.daemon.create(*command, size=size)
        self.attached = windows.attach(self.name, size=size)
        self.panes = self.bare, self.attached

    def keys(self, *names):
        for pane in self.panes:
            pane.keys(*names)

    def type(self, text):
        for pane in self.panes:
            pane.type(text)

    def line(self, text):
        self.type(text)
        self.keys("Enter")

    def paste(self, data):
        for pane in self.panes:
            pane.paste(data)

    def resize(self, cols, rows):
        for pane in self.panes:
            pane.resize(cols, rows)

    def until(self, text):
        for pane in self.panes:
            pane.until(text)

    def asks_again(self, after="^C"):
        """Wait until both windows end with the text `after` and, on the next line, a prompt.

        Until a shell shows its prompt, the terminal would echo what is typed.
        """
        for pane in self.panes:
            pane.until(lambda pane=pane: pane.text.endswith(f"{after}\n$"))

    def alike(self):
        """Wait until both windows have the same content, colours, cursor and modes."""

        try:
            self.attached.until(lambda: seen(self.attached) == seen(self.bare), 25)
        except pytest.fail.Exception:
            assert self.attached.screen(colours=True) == self.bare.screen(colours=True)
            raise

    def alike_after(self, keys):
        """Type `keys` until both windows are alike, several times if necessary.

        `less` may drop a key that comes together with a SIGWINCH.
        """
        for _ in range(10):
            self.type(keys)
            with contextlib.suppress(pytest.fail.Exception):
                self.attached.until(lambda: seen(self.attached) == seen(self.bare), 2)
                return
        self.alike()


def seen(pane):
    """Return a window's cursor, modes and cells."""
    return [pane.cursor, pane.modes, *pane.cells()]


@pytest.mark.long
def test_shell_line_editing_completion_and_history_work(windows):
    both = Both(windows, *BASH)
    both.until("$")
    both.line("echo one two")
    both.asks_again("\none two")
    both.type("cho three")
    both.keys("C-a", "e", "C-e", "BSpace", "BSpace", "M-b", "Left", "Right", "C-k", "x")
    both.alike()
    both.keys("Enter", "Up", "Up", "Enter")
    both.asks_again("\nx\n$ echo one two\none two")
    both.alike()
    both.type("cat tex")
    both.keys("Tab")
    both.until("text.py")
    both.keys("C-u")
    both.keys("C-r")
    both.type("two")
    both.until("reverse-i-search")
    both.keys("C-g")
    # Bracketed paste: the shell does not run it, and highlights it.
    both.paste(b"echo pasted\necho again")
    both.until("echo again")
    both.alike()
    both.keys("Enter")
    both.asks_again("\nagain")
    both.line("printf '\\e[1;31mred\\e[0;44m blue\\e[m \\e[4mline\\e[m'; tput cup 3 20")
    both.alike()
    both.keys("C-l")
    both.line("stty -a")
    both.until("extproc")
    both.alike()


@pytest.mark.long
def test_shell_job_control_works(windows):
    both = Both(windows, *BASH)
    both.until("$")
    # Each program prints a line when it runs; earlier input would go to the shell.
    both.line("sh -c 'trap \"echo back\" CONT; echo begun; while :; do sleep 0.1; done'")
    both.until("\nbegun")
    both.keys("C-z")
    both.until("Stopped")
    both.asks_again("done'")
    both.line("fg")
    both.until("\nback")
    both.keys("C-c")
    both.asks_again()
    both.line("echo round; while :; do :; done")
    both.until("\nround")
    both.keys("C-c")
    both.asks_again()
    both.line("echo $?")
    both.asks_again("\n130")
    both.line("echo reads; cat")
    both.until("\nreads")
    both.line("twice")
    both.until("twice\ntwice")
    both.keys("C-d")
    both.asks_again("twice")
    both.line("echo $?")
    both.asks_again("\n0")
    both.alike()


@pytest.mark.long
def test_editor_shows_colours_and_restores_the_screen(windows):
    both = Both(windows, *BASH)
    both.until("$")
    both.line("echo under it")
    both.asks_again("\nunder it")
    # Keep it short: tmux rewraps a long line in a narrower window, and acpterm does not.
    (windows.daemon.directory / "v").write_text(f"{shlex.join(VIM)} text.py")
    both.line(". ./v")
    both.until("text.py")
    both.alike()
    assert both.attached.modes["alternate_on"] == "1"
    both.type("/string")
    both.keys("Enter")
    both.keys("Down", "Down", "Right", "End", "PgDn", "C-Right")
    both.type("Onew line 日本")
    both.keys("Up", "Home")
    both.type("x")
    both.keys("Escape")
    both.line(":split")
    both.alike()
    both.resize(60, 25)
    for pane in both.panes:
        # vim may drop a key that comes with SIGWINCH.
        pane.until(lambda pane=pane: "text.py" in pane.screen()[-2])
    both.alike()
    both.line(":qa!")
    for pane in both.panes:
        pane.until(lambda pane=pane: not pane.modes)
    both.alike()
    assert "under it" in both.attached.text


@pytest.mark.parametrize(
    ("command", "first", "steps", "after_resize"),
    [
        # Which part of a wrapped line `less` shows first after a resize depends on the time.
        (("less", "-N", "text.py"), "string 5", ["/return\r", "f", "10j", "3k", "G", "b"], "g"),
        (("nano", "-I", "+1", "text.py"), "^J Justify", ["abc", "\x16", "\x19", "\x17def\r"], ""),
        (
            (sys.executable, "-q"),
            ">>>",
            ["for i in range(3): print(i)\r\r", "1/0\r", "'日本'*3\r"],
            "",
        ),
    ],
    ids=["less", "nano", "python"],
)
@pytest.mark.long
def test_program_shows_the_same_as_without_attach(windows, command, first, steps, after_resize):
    both = Both(windows, *command)
    both.until(first)
    for step in steps:
        before = seen(both.bare)
        both.type(step)
        # A program draws something else if keys come before it has drawn what the last ones asked.
        both.bare.until(lambda before=before: seen(both.bare) != before)
        both.alike()
    both.resize(50, 12)
    both.alike_after(after_resize)


@pytest.mark.parametrize(
    "command", [("htop", "-d", "50"), ("top", "-d", "50")], ids=["htop", "top"]
)
@pytest.mark.long
def test_program_that_redraws_periodically_is_shown(windows, command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    name = windows.daemon.create(*command, size=(70, 18))
    pane = windows.attach(name, size=(70, 18))
    pane.until("PID")
    before = pane.screen(colours=True)
    # A second window shows the same, and the first one is repainted for the resize.
    other = windows.attach(name, size=(70, 18))
    other.until("PID")
    other.until(lambda: "PID" in other.text and "leaves it" not in other.text)
    assert len(before) == len(other.screen(colours=True))
    pane.type("q")
    assert (pane.ended(), other.ended()) == (0, 0)


@pytest.mark.long
def test_wide_characters_are_shown(windows):
    both = Both(windows, *BASH)
    both.until("$")
    both.line(
        "clear; PS1='> '; printf '\\n漢字かな\\ne\\u0301 o\\u0308\\n👍🏽|👩‍👩‍👧|🇩🇪|❤️|\\n'; echo end"
    )
    both.until("\nend\n>")
    both.type("echo 日本x語")
    both.keys("Left", "Left", "BSpace")
    again = windows.attach(both.name, size=(70, 18))
    # A picture of the screen has no joiners and no variation selectors.
    for pane in both.attached, again:
        pane.until(lambda pane=pane: plain(pane) == plain(both.bare))


def plain(pane):
    """Return text and cursor, without joiners and variation selectors."""
    text = unicodedata.normalize("NFC", pane.text)
    return text.translate({0x200D: None, 0xFE0F: None}), pane.cursor


@pytest.mark.long
def test_size_follows_the_window(windows):
    both = Both(windows, *VIM, "text.py")
    both.until("text.py")
    for step in range(12):
        for cols, rows in (40 + step, 10), (90, 30 - step):
            both.resize(cols, rows)
    both.resize(66, 19)
    both.attached.until(lambda: windows.daemon.size(both.name) == (66, 19))
    # Which line is at the top depends on the sizes that vim has noticed. vim may drop a key that
    # comes with SIGWINCH, so repeat it; Escape cancels a half of it.
    both.attached.until(
        lambda: (
            both.type("\x1bgg") or all(pane.text.lstrip().startswith("1 ") for pane in both.panes)
        )
    )
    both.alike()


# Mouse, application cursor keys and keypad, and bracketed paste; then much output that overwrites
# itself, no faster than it can be drawn.
LONG = """
echo main; echo screen; stty raw -echo
printf '\\e[?1049h\\e[?1000;1006;1;2004h\\e=\\e[44m\\e[2J\\e[3;5Hblue\\e[m'
for n in {1..24}; do printf '\\e[5;1Hx\\n%.0s' {1..900}; sleep 0.05; done
printf '\\e[2;2Hready'; head -c 30 | cat -v
printf '\\e[?1000;1006;1;2004l\\e>\\e[?1049l'; stty sane; echo over; exec sleep 1000
"""


@pytest.mark.long
def test_modes_set_before_attach_are_restored(windows, tmp_path):
    """The output that set the modes is no longer retained."""
    file = tmp_path / "long"
    file.write_text(LONG)
    with blocking_daemon(tmp_path / "daemon", ACPTERM_RAW_BYTES=str(64 * 1024)) as daemon:
        bare = windows.bare("bash", str(file), size=(40, 12))
        bare.until("ready")
        windows = Windows(daemon, windows.tmux)
        name = daemon.create("bash", str(file), size=(40, 12))
        bare.until(lambda: daemon.info(name)["position"] > 160_000)
        late = windows.attach(name, size=(40, 12))
        late.until("ready")
        late.until(
            lambda: (late.text, late.cursor, late.modes) == (bare.text, bare.cursor, bare.modes)
        )
        blue = [cell for cell in late.cells()[2] if cell.data != " "]
        assert "".join(cell.data for cell in blue) == "blue"
        assert all(cell.style.bg != -1 for cell in blue)
        assert late.modes["mouse_any_flag"] == late.modes["keypad_cursor_flag"] == "1"
        for pane in bare, late:
            pane.keys("Up", "Down")
            pane.paste(b"pasted")
            pane.type("0123456")
            pane.until("over")
            assert pane.text.startswith("main\nscreen\n")
        late.until(
            lambda: (late.text, late.cursor, late.modes) == (bare.text, bare.cursor, bare.modes)
        )
