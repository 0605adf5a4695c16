"""`acpterm attach`: attach, detach, sizes, several windows, floods, and failures."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.daemon import blocking_daemon
from tests.support.polling import poll_blocking
from tests.support.starting import ACPTERM
from tests.support.tmux import needs_tmux, tmux_server
from tests.support.windows import DETACH, Windows

pytestmark = needs_tmux

BASH = ("bash", "--norc", "--noprofile")
OURS = " ".join(ACPTERM)


def client_of(pane):
    """Return the pid of the attach command that the shell in `pane` has started."""
    children = Path(f"/proc/{pane.pid}/task/{pane.pid}/children").read_text().split()
    return int(children[-1])


def is_raw(pane):
    # A shell that reads a line keeps `isig` on.
    return "-isig" in stty(pane)


def stty(pane):
    with open(pane.tty) as terminal:
        result = subprocess.run(["stty", "-a"], stdin=terminal, capture_output=True, check=True)
    return result.stdout.decode()


def inside(pane):
    """Return the text of a terminal that is smaller than the window `pane`.

    The window has dots outside of the terminal, which are removed.
    """
    return "\n".join(line.rstrip("· ") for line in pane.screen()).rstrip()


def assert_size(pane, expected):
    """Print the terminal's size with stty, and check its rows and columns."""
    pane.line("clear; stty size")
    pane.until(f"{expected}\n$")


# -- Attach and detach

# Modes that a program may have set in the window when it is detached.
MESS = (
    "\\e[?1049h\\e[?1000;1002;1003;1006;1004;2004;1;5h\\e=\\e[?25l\\e[2;4r\\e[?7l\\e[4h\\e[41;1m"
    "\\e(0\\e[3gready"
)


def shows_mess(pane):
    return pane.modes.get("mouse_any_flag") == "1"


def tidy(pane):
    return pane.modes == {} and pane.of("origin_flag") == ["0"]


@pytest.mark.parametrize("way", ["key", "SIGTERM", "SIGHUP", "killed", "removed"])
@pytest.mark.long
def test_window_is_restored_however_attach_ends(windows, way):
    name = windows.daemon.create("bash", "-c", f"printf '{MESS}'; exec sleep 1000")
    shell = windows.shell()
    shell.line("echo before")
    # The shell sets its mode before it shows the prompt.
    shell.until("\nbefore\nhere$")
    before = stty(shell)
    shell.line(f"{OURS} attach {name}; echo status $?")
    shell.until(lambda: shows_mess(shell))
    assert is_raw(shell)
    if way == "key":
        shell.keys(DETACH)
    elif way.startswith("SIG"):
        os.kill(client_of(shell), getattr(signal, way))
    elif way == "killed":
        windows.daemon.request("terminal/kill", terminalId=name)
    else:
        windows.daemon.request("terminal/release", terminalId=name)
    shell.until("status 0")
    # SIGKILL, if the machine stalls for the daemon's short grace.
    outcome = "ended by SIG(TERM|KILL)" if way in ("killed", "removed") else "runs on"
    assert re.search(rf"\[{name} {outcome}\]", shell.text)
    # The shell restores the mode before it reads a line.
    shell.line("echo; echo after")
    shell.until("\nafter\nhere$")
    shell.until(lambda: tidy(shell))
    assert stty(shell) == before
    assert "before" in shell.history()
    # Colours, line drawing and tab stops are reset.
    shell.line("clear; printf 'q\\tx\\n'")
    shell.until("q       x")
    assert any("q       x" in line for line in shell.screen(colours=True))
    if way not in ("killed", "removed"):
        shell.until(lambda: windows.daemon.info(name)["attached"] == 0)
        assert windows.daemon.info(name)["state"] == "running"


@pytest.mark.long
def test_cursor_is_below_the_output_after_detach(windows):
    """Also if a program has moved the cursor and saved its position."""
    name = windows.daemon.create(*BASH)
    shell = windows.shell()
    shell.line(f"{OURS} attach {name}")
    shell.until(lambda: windows.daemon.info(name)["attached"])
    shell.line("printf '\\e[?1049h\\e[?1049l'")
    shell.line("echo one; echo two")
    shell.until("\none\ntwo\n$")
    shell.keys(DETACH)
    shell.until(f"two\n$\n[{name} runs on]\nhere$")


@pytest.mark.long
def test_attach_fails_and_restores_the_window_when_the_daemon_is_killed(windows, tmp_path):
    with blocking_daemon(tmp_path / "another") as daemon:
        other = Windows(daemon, windows.tmux)
        name = daemon.create("bash", "-c", f"printf '{MESS}'; exec sleep 1000")
        shell = other.shell()
        shell.line(f"{OURS} attach {name}; echo status $?")
        shell.until(lambda: shows_mess(shell))
        daemon.process.kill()
        shell.until("status 1")
        assert re.search(r"acpterm: the daemon at .*is gone", shell.text.replace("\n", ""))
        shell.until(lambda: tidy(shell))
        assert not is_raw(shell)


@pytest.mark.long
def test_program_survives_when_the_window_closes(windows):
    name = windows.daemon.create(*BASH)
    pane = windows.attach(name)
    client = pane.pid
    keep = windows.shell()
    pane.close()
    keep.until(lambda: not Path(f"/proc/{client}").exists())
    keep.until(lambda: windows.daemon.info(name)["attached"] == 0)
    assert windows.daemon.info(name)["state"] == "running"


@pytest.mark.long
def test_screen_is_repainted_when_the_client_is_stopped_and_continued(windows):
    name = windows.daemon.create("bash", "-c", "printf '\\e[?1049h\\e[3;3Hfull'; exec cat")
    shell = windows.shell()
    shell.line(f"{OURS} attach {name}")
    shell.until("full")
    os.kill(client_of(shell), signal.SIGSTOP)
    shell.until("Stopped")
    shell.line("clear; echo meanwhile")
    shell.until("meanwhile")
    assert not is_raw(shell)
    shell.line("fg")
    shell.until(lambda: "full" in shell.text and "meanwhile" not in shell.text)
    assert is_raw(shell)
    shell.type("\x03")
    shell.until("ended by SIGINT")


@pytest.mark.long
def test_last_output_is_complete(windows):
    name = windows.daemon.create("bash", "-c", "read x; seq 3000; printf last; exit 3")
    # In a shell, since tmux itself may lose the last output of a window's own program.
    shell = windows.shell()
    shell.line(f"{OURS} attach {name}")
    shell.until(lambda: windows.daemon.info(name)["attached"])
    shell.keys("Enter")
    shell.until(f"\n3000\nlast\n[{name} exited with 3]\nhere$")
    again = windows.acpterm("attach", name)
    assert again.ended() == 1
    assert (
        again.text == f"acpterm: the program of terminal {name} has ended: see acpterm logs {name}"
    )


@pytest.mark.long
def test_attach_needs_a_terminal(windows):
    name = windows.daemon.create(*BASH)
    lines = "; ".join(f"{OURS} attach {name} | cat" for name in (name, "nosuch"))
    pane = windows.open("sh", "-c", f"{lines}; echo end")
    pane.until("\nend")
    assert "acpterm: attach needs a terminal" in pane.text
    assert "acpterm: there is no terminal 'nosuch'" in pane.text


# -- The detach key


@pytest.mark.long
def test_notice_disappears(windows):
    """`test_attach_resume` shows that a key and output remove it before its time is over."""
    name = windows.daemon.create(*BASH)
    pane = windows.attach(name, size=(60, 8), log=True)
    # The notice may be gone before it is seen on the screen.
    pane.until(lambda: pane.has_printed(f"[{name}: C-\\ leaves it]"))
    pane.until(lambda: "leaves it" not in pane.text)


@pytest.mark.long
def test_detach_keys_are_configurable(windows):
    name = windows.daemon.create("bash", "-c", "stty raw -echo; printf ready; cat -v")
    env = {"ACPTERM_DETACH_KEY": "C-b d"}
    pane = windows.attach(name, env=env, log=True)
    pane.until(lambda: pane.has_printed("C-b d leaves it"))
    pane.until("ready")
    pane.keys("C-\\", "C-b", "x", "C-b")
    pane.until("ready^\\^Bx")
    pane.keys("d")
    assert pane.ended() == 0
    pane = windows.attach(name)
    # The same key as reported by kitty's protocol.
    pane.raw(b"\x1b[92;5u")
    assert pane.ended() == 0
    bad = windows.acpterm("attach", name, env={"ACPTERM_DETACH_KEY": "C-Enter"})
    assert bad.ended() == 1
    assert "ACPTERM_DETACH_KEY: detach_key = 'C-Enter': " in bad.text


# -- Input


@pytest.mark.long
def test_long_paste_arrives_complete(windows, tmp_path):
    lines = b"".join(b"%06d %s\n" % (n, b"x" * 43) for n in range(2000))
    received = tmp_path / "taken"
    # A program that does not read for a while, and then slowly.
    reads = "while 1: file.write(os.read(0, 3000)); file.flush()"
    slow = f"import os, time; time.sleep(1); file = open({str(received)!r}, 'wb')\n{reads}"
    for program in ["bash", "-c", f"cat > {received}"], [sys.executable, "-c", slow]:
        received.write_bytes(b"")
        name = windows.daemon.create(
            "bash", "-c", 'stty -echo; printf ready; exec "$@"', "-", *program
        )
        pane = windows.attach(name)
        pane.until("ready")
        pane.paste(lines)
        pane.until(lambda: received.stat().st_size >= len(lines))
        assert received.read_bytes() == lines


# -- Several windows


@pytest.mark.long
def test_terminal_has_the_size_of_the_smallest_window(windows):
    name = windows.daemon.create(*BASH, size=(100, 30))
    one = windows.attach(name, size=(80, 20))
    assert_size(one, "20 80")
    other = windows.attach(name, size=(60, 25))
    assert windows.daemon.size(name) == (60, 20)
    assert_size(other, "20 60")
    one.line("clear; echo typed in one")
    for pane in one, other:
        pane.until(lambda pane=pane: "typed in one\n$" in inside(pane))
    other.line("clear; echo typed in the other")
    for pane in one, other:
        pane.until(lambda pane=pane: "typed in the other\n$" in inside(pane))
    other.keys(DETACH)
    other.ended()
    one.until(lambda: windows.daemon.size(name) == (80, 20))
    assert_size(one, "20 80")
    one.line("clear; trap 'stty size' WINCH")
    one.keys(DETACH)
    one.ended()
    one.until(lambda: windows.daemon.size(name) == (100, 30))


@pytest.mark.long
def test_read_only_window_neither_resizes_nor_types(windows):
    name = windows.daemon.create(
        "bash", "-c", "printf 'one\\n%070d|\\n\\n\\n\\nsix' 7; exec cat", size=(72, 8)
    )
    small = windows.attach(name, "-r", size=(40, 4))
    large = windows.attach(name, "-r", size=(90, 12))
    large.until("six")
    large.until(lambda: inside(large) == f"one\n{7:070}|\n\n\n\nsix")
    # The small window shows the part with the cursor.
    small.until(lambda: small.text == "\n\n\nsix" and small.cursor == (3, 3))
    assert windows.daemon.size(name) == (72, 8)
    for pane in small, large:
        pane.line("typed")
    for pane in small, large:
        pane.keys(DETACH)
        pane.ended()
    screen = windows.daemon.request("terminal/screen", terminalId=name)
    assert "typed" not in "".join(screen["rows"])


@pytest.mark.long
def test_terminal_query_is_answered_once(windows):
    name = windows.daemon.create(
        "bash", "-c", "stty raw -echo; printf ready; read -n1 x; printf '\\e[c\\e[6n'; cat -v"
    )
    panes = [windows.attach(name), windows.attach(name), windows.attach(name, "-r")]
    for pane in panes:
        pane.until("ready")
        pane.until(lambda pane=pane: "leaves it" not in pane.text)
    panes[0].keys("x")
    panes[1].until(lambda: re.search(r"R$", panes[1].text))
    panes[0].type("end")
    answers = re.compile(r"ready\^\[\[\?[\d;]*c\^\[\[1;6Rend")
    # The notice may be on the screen as well, for a moment.
    panes[1].until(lambda: answers.fullmatch(panes[1].text))


@pytest.mark.parametrize("options", [(), ("-r",)], ids=["typing", "read-only"])
@pytest.mark.long
def test_replies_of_the_users_terminal_do_not_reach_their_shell(windows, options):
    asking = "\\e[c\\e[6n\\e]11;?\\a\\e[>q\\e[18t\\e[?u\\005"
    name = windows.daemon.create(
        "bash", "-c", f"stty raw -echo; while :; do printf '{asking}.'; sleep 0.005; done"
    )
    shell = windows.shell()
    shell.line(f"{OURS} attach {' '.join(options)} {name}; echo status $?")
    shell.until("....")
    shell.keys(DETACH)
    shell.until("status 0")
    # Before the shell has left its line editor, Ctrl-D would be an ordinary character for cat.
    shell.line("echo begin; cat -v; echo end")
    shell.until("\nbegin")
    shell.keys("C-d")
    shell.until("\nend")
    after = shell.text.partition("status 0")[2]
    assert not re.search(r"\^\[|\[\?|;\d+[cRt]|rgb:", after), after


@pytest.mark.long
def test_window_starts_with_the_last_output_without_an_emulator(windows, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "pyghostty.py").write_text("raise ImportError('no wheel for this machine')\n")
    with blocking_daemon(tmp_path / "daemon", PYTHONPATH=str(hidden)) as daemon:
        other = Windows(daemon, windows.tmux)
        name = daemon.create(
            "bash", "-c", "seq 100; echo ready; read x; printf '\\e[?1049h'; exec cat"
        )
        shell = other.shell()
        shell.until(lambda: "ready" in daemon.request("terminal/output", terminalId=name)["text"])
        shell.line(f"{OURS} screen {name}")
        shell.until(lambda: "pip install pyghostty" in shell.text.replace("\n", ""))
        shell.line(f"clear; {OURS} logs {name} | tail -1")
        shell.until("ready\nhere$")
        pane = other.attach(name)
        pane.until("99\n100\nready")
        pane.line("")
        pane.until(lambda: pane.modes.get("alternate_on") == "1")
        late = other.acpterm("attach", name)
        assert late.ended() == 1
        assert "pip install pyghostty" in late.text.replace("\n", "")


# -- Scrollback


def numbers(pane):
    """Return the numbers that are lines of the window and its scrollback."""
    return [int(line) for line in pane.history().split("\n") if line.isdigit()]


def until_has_all(pane, find, count):
    """Wait until `find` finds the numbers from 1 to `count` in a window; return them all.

    While the window is repainted, some are missing.
    """
    wanted = list(range(1, count + 1))
    return pane.until(lambda: list(dict.fromkeys(found := find(pane))) == wanted and found)


def marked(pane):
    """Return the numbers of the lines of `MARKED` in the window and its scrollback."""
    return [int(one) for one in re.findall("^n([0-9]+) 0", pane.history(), re.MULTILINE)]


MARKED = "for i in {1..90}; do printf 'n%d %0200d\n' $i 0; done; exec cat"


@pytest.mark.parametrize("line", ["seq 100", "sleep 1; seq 5000", "seq 30000"])
@pytest.mark.long
def test_run_leaves_all_output_in_the_scrollback(windows, line):
    shell = windows.shell()
    shell.line(f"{OURS} run --rm '{line}'; echo status $?")
    shell.until("status 0")
    assert numbers(shell) == list(range(1, int(line.split()[-1]) + 1))


@pytest.mark.long
def test_run_leaves_output_between_resizes_and_long_lines_in_the_scrollback(windows, tmp_path):
    shell = windows.shell()
    go = tmp_path / "go"
    shell.line(f"{OURS} run --rm 'seq 300; until [ -e {go} ]; do sleep .1; done; seq -s, 9999'")
    shell.until("\n300")
    shell.resize(100, 30)
    shell.until("\n300")
    go.touch()
    shell.until("9999\n")
    history = shell.history().replace("\n", "")
    assert ",".join(map(str, range(1, 10000))) in history
    assert set(range(1, 301)) <= set(numbers(shell))


@pytest.mark.long
def test_attach_shows_what_was_printed_before_in_colour_but_no_full_screen_program(windows):
    program = "printf '\\e[?1049hfull screen\\e[?1049l'; for i in {1..400}; do "
    program += "printf '\\e[3%dm%d\\e[m\\n' $((i % 8)) $i; done; echo all; exec sleep 1000"
    name = windows.daemon.create("bash", "-c", program)
    poll_blocking(lambda: "all" in windows.daemon.run("logs", name))
    pane = windows.attach(name)
    pane.until("\nall")
    assert numbers(pane) == list(range(1, 401))
    assert "full screen" not in pane.history()
    assert "\x1b[33m123\n" in pane.history(colours=True)


@pytest.mark.long
def test_run_leaves_no_empty_line_above_its_output(windows):
    shell = windows.shell()
    shell.line(f"{OURS} run --rm 'echo first'; printf open; {OURS} run --rm 'echo second'")
    shell.until("second\nhere$")
    lines = [line.rstrip() for line in shell.history().rstrip().split("\n")]
    assert lines[-4:] == ["first", "open", "second", "here$"]
    assert "" not in lines


@pytest.mark.long
def test_resized_window_loses_none_of_the_lines_that_it_arranges_again(windows):
    name = windows.daemon.create("bash", "-c", MARKED)
    pane = windows.attach(name)
    pane.until("n90 0")
    for cols, rows in (60, 20), (120, 30), (80, 24):
        pane.resize(cols, rows)
        pane.until(lambda size=(cols, rows): windows.daemon.size(name) == size)
        pane.line(f"echo {cols}")
        pane.until(f"echo {cols}\necho {cols}")
    assert len(until_has_all(pane, marked, 90)) == 90


@pytest.mark.parametrize("size", [(80, 40), (120, 30), (60, 20)])
@pytest.mark.parametrize("when", ["at once", "later"])
@pytest.mark.long
def test_window_that_is_resized_and_repainted_keeps_each_line(windows, size, when):
    """Also if the daemon handles both at once. One line at most is there twice."""
    name = windows.daemon.create("bash", "-c", MARKED)
    pane = windows.attach(name)
    pane.until("n90 0")
    worker = windows.daemon.request("status")["workerPid"]
    if when == "at once":
        os.kill(worker, signal.SIGSTOP)
    pane.resize(*size)
    if when == "at once":
        pane.until(lambda: pane.of("pane_width", "pane_height") == [str(one) for one in size])
        os.kill(pane.pid, signal.SIGWINCH)
        os.kill(worker, signal.SIGCONT)
    pane.until(lambda: windows.daemon.size(name) == size)
    if when == "later":
        os.kill(pane.pid, signal.SIGWINCH)
    for word in "first", "second":
        pane.line(word)
        pane.until(f"{word}\n{word}")
    assert len(until_has_all(pane, marked, 90)) <= 91


@pytest.mark.parametrize("last", ["detached", "ended", "worker"])
@pytest.mark.long
def test_lines_printed_while_a_window_shows_frames_are_in_its_scrollback(windows, tmp_path, last):
    go = tmp_path / "go"
    program = f"seq 100; until [ -e {go} ]; do sleep .1; done; seq 101 600; read"
    name = windows.daemon.create("bash", "-c", program)
    large = windows.attach(name)
    large.until("\n100")
    small = windows.attach(name, size=(60, 10))
    large.until(lambda: "·" in large.text)
    go.touch()
    small.until("\n600")
    if last == "worker":
        os.kill(windows.daemon.request("status")["workerPid"], signal.SIGKILL)
        large.until(lambda: windows.daemon.info(name)["attached"] == 2)
    if last != "ended":
        small.keys(DETACH)
        small.ended()
        large.until(lambda: "·" not in large.text)
    else:
        large.line("")
        assert large.ended() == 0
    assert len(until_has_all(large, numbers, 600)) <= 601


@pytest.mark.parametrize("command", ["attach", "run"])
@pytest.mark.long
def test_lines_printed_without_a_worker_are_in_the_scrollback(windows, tmp_path, command):
    daemon, shell, name = windows.daemon, windows.shell(), f"killed-{command}"
    program = f"seq 300; until [ -e {tmp_path}/go ]; do sleep .1; done; seq 301 50000; "
    program += f"touch {tmp_path}/printed; exec sleep 1000"
    if command == "run":
        shell.line(f"{OURS} run --name {name} '{program}'")
    else:
        daemon.request("terminal/create", name=name, command=program, cols=80, rows=24)
        shell.line(f"{OURS} attach {name}")
    shell.until("\n300")
    worker = daemon.request("status")["workerPid"]
    os.kill(worker, signal.SIGSTOP)
    (tmp_path / "go").touch()
    poll_blocking((tmp_path / "printed").exists)
    os.kill(worker, signal.SIGKILL)
    shell.until("\n50000")
    assert numbers(shell) == list(range(1, 50001))


# -- Floods


@pytest.mark.long
def test_key_stops_a_flood(windows):
    name = windows.daemon.create(*BASH)
    pane = windows.attach(name)
    pane.line("yes")
    pane.until("\ny\ny")
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        assert "y" in pane.text
    pane.keys("C-c")
    # The terminal may echo "^C" before output that it had already accepted.
    pane.until(lambda: pane.text.endswith("\n$"))
    pane.line("echo done")
    pane.until("\ndone")


@pytest.mark.long
def test_window_that_does_not_read_delays_no_other(windows):
    name = windows.daemon.create(*BASH)
    # Not the window's own program, which tmux would continue at once.
    stopped = windows.open("sh", "-c", f"{OURS} attach {name}; exit $?")
    stopped.until(lambda: windows.daemon.info(name)["attached"])
    other = windows.attach(name)
    other.until("$")
    # Long lines are less work for tmux.
    line = "y" * 70
    other.line(f"yes {line}")
    other.until(f"\n{line}\ny")
    client = client_of(stopped)
    os.kill(client, signal.SIGSTOP)
    before = windows.daemon.info(name)["position"]
    memory = windows.daemon.memory()
    # Many times the retained output.
    other.until(lambda: windows.daemon.info(name)["position"] > before + 12_000_000)
    other.keys("C-c")
    # The terminal may echo "^C" before output that it had already accepted.
    other.until(lambda: other.text.endswith("\n$"))
    other.line("clear; echo after all")
    other.until("after all\n$")
    assert windows.daemon.memory() < memory + 8_000_000
    os.kill(client, signal.SIGCONT)
    stopped.until(lambda: stopped.text == other.text)
    assert f"bytes of output are not shown here: acpterm logs {name}]" in stopped.history()


# -- Which terminal


@pytest.mark.long
def test_attach_without_a_name_takes_the_users_latest_terminal(tmp_path):
    with blocking_daemon(tmp_path / "daemon") as daemon, tmux_server(tmp_path / "tmux") as tmux:
        windows = Windows(daemon, tmux)
        nothing = windows.acpterm("attach")
        assert nothing.ended() == 1
        assert "no terminal of yours runs: acpterm run starts one" in nothing.text
        first, second, ended = (
            daemon.create("bash", "-c", f"echo {n}; read") for n in ("one", "two", "x")
        )
        daemon.request("terminal/kill", terminalId=ended)
        poll_blocking(lambda: daemon.info(ended)["state"] != "running")
        pane = windows.acpterm("attach", log=True)
        pane.until(lambda: pane.has_printed(f"[{second}: C-\\ leaves it]"))
        pane.keys(DETACH)
        assert pane.ended() == 0
        # The terminal that the command runs in is skipped.
        env = {"ACPTERM_TERMINAL_ID": daemon.info(second)["terminalId"]}
        inside = windows.acpterm("attach", env=env, log=True)
        inside.until(lambda: inside.has_printed(f"[{first}, inside of {second}"))
