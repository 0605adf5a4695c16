"""Each hard case ends in a clear state, and the next command works; in a real shell each."""

import os
import time
from pathlib import Path

import pytest

from tests.shell.harness import PlainShell, Result
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll_blocking

pytestmark = pytest.mark.long

POSIX = ["bash", "zsh"]
ALL = ["bash", "zsh", "fish"]


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return str(tmp_path / "home")


def exact(result: Result, code: int, output: str | None = None) -> None:
    """Check that a result has an exact boundary, this exit code and, if given, this output."""
    assert result.outcome is not None, result
    assert result.outcome.boundary == "exact", result
    assert result.outcome.exit_code == code, result
    if output is not None:
        assert result.output == output, result


def works(shell: PlainShell) -> None:
    """Check that the shell runs a further command."""
    exact(shell.run("echo works"), 0, "works\n")


@pytest.mark.parametrize("kind", ALL)
def test_shell_returns_code_output_and_directory_of_commands(kind, home):
    with PlainShell(kind, home) as shell:
        exact(shell.run("echo hi"), 0, "hi\n")
        exact(shell.run("sh -c 'exit 7'"), 7, "")
        exact(shell.run("printf 'no newline'"), 0, "no newline")
        exact(shell.run(""), 0, "")
        exact(shell.run("# comment"), 0, "")
        result = shell.run("mkdir -p 'a b\nc'; cd 'a b\nc'")
        exact(result, 0, "")
        assert result.outcome.cwd == f"{home}/a b\nc"
        exact(shell.run("true | false | true"), 0)
        assert shell.run("false | true | sh -c 'exit 3'").outcome.pipe_status == [1, 0, 3]


@pytest.mark.parametrize("kind", ALL)
def test_status_of_a_command_is_seen_by_the_next(kind, home):
    variable = "$status" if kind == "fish" else "$?"
    with PlainShell(kind, home) as shell:
        shell.run("sh -c 'exit 9'")
        exact(shell.run(f"echo {variable}"), 0, "9\n")


@pytest.mark.costly
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "command", ["echo 'a", 'echo "a', "if true", "echo (", "echo a |", "echo a &&", ")", "{"]
)
def test_incomplete_command_fails_and_the_shell_works_on(kind, command, home):
    with PlainShell(kind, home) as shell:
        result = shell.run(command)
        assert result.outcome.boundary == "exact"
        # Some shells accept some of them.
        accepted = {("fish", "echo a |"), ("zsh", "echo a &&"), ("zsh", "{")}
        assert result.outcome.exit_code != 0 or (kind, command) in accepted, result
        assert "__acpterm" not in result.output
        works(shell)


@pytest.mark.parametrize("kind", POSIX)
def test_unterminated_here_document_ends_with_the_command(kind, home):
    with PlainShell(kind, home) as shell:
        result = shell.run("cat <<EOF\nfoo")
        exact(result, 0)
        assert result.output.endswith("foo\n")
        assert "__acpterm" not in result.output
        exact(shell.run("cat <<EOF\nfoo\nEOF"), 0, "foo\n")
        assert "__acpterm" not in shell.run("cat <<EOF\nfoo\nEOF ").output
        works(shell)


@pytest.mark.parametrize("kind", POSIX)
def test_function_without_a_body_does_not_get_one(kind, home):
    with PlainShell(kind, home) as shell:
        shell.run("f()")
        assert "__acpterm" not in shell.run("typeset -f f").output
        works(shell)


@pytest.mark.parametrize("kind", ALL)
def test_exit_ends_the_shell_except_in_fish(kind, home):
    with PlainShell(kind, home) as shell:
        result = shell.run("echo bye; exit 3")
        assert result.output == "bye\n"
        if kind == "fish":
            exact(result, 3)
        else:
            assert (result.has_ended, result.outcome) == (True, None)


@pytest.mark.parametrize("kind", ALL)
def test_exec_ends_the_shell_with_the_programs_end(kind, home):
    with PlainShell(kind, home) as shell:
        result = shell.run("exec sh -c 'echo from exec; exit 4'")
        assert (result.has_ended, result.outcome) == (True, None)
        assert result.output == "from exec\n"


@pytest.mark.parametrize("kind", ALL)
def test_killed_shell_has_ended_without_an_outcome(kind, home):
    pid = "$fish_pid" if kind == "fish" else "$$"
    with PlainShell(kind, home) as shell:
        result = shell.run(f"echo before; kill -9 {pid}")
        assert (result.has_ended, result.outcome, result.output) == (True, None, "before\n")


@pytest.mark.parametrize("kind", POSIX)
def test_set_e_ends_the_shell_only_at_a_failure(kind, home):
    with PlainShell(kind, home) as shell:
        exact(shell.run("set -e; echo on"), 0, "on\n")
        exact(shell.run("false || echo caught"), 0, "caught\n")
        exact(shell.run("false && echo never"), 1, "")
        exact(shell.run("echo $?"), 0, "1\n")
        exact(shell.run("if false; then :; fi; echo alive"), 0, "alive\n")
        exact(shell.run("! true"), 1, "")
        works(shell)
        result = shell.run("echo first; sh -c 'exit 5'; echo never")
        assert (result.has_ended, result.outcome, result.output) == (True, None, "first\n")


@pytest.mark.parametrize("kind", ALL)
def test_deleted_directory_is_reported(kind, home):
    with PlainShell(kind, home) as shell:
        result = shell.run("mkdir gone; cd gone; rmdir ../gone")
        assert result.outcome.boundary == "exact"
        assert result.outcome.cwd is None
        assert result.outcome.detail == f"the directory {home}/gone no longer exists"
        exact(shell.run("echo still"), 0, "still\n")
        assert shell.run("cd").outcome.cwd == home


@pytest.mark.costly
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("program", ["less", "python", "cat", "read", "shell", "nested"])
def test_program_that_waits_for_input_keeps_the_command_open(kind, program, home):
    command, wait_for, keys, code = {
        "less": ("seq 500 | less", "\n:", b"q", 0),
        "python": ("python3 -q", ">>> ", b"raise SystemExit(6)\r", 6),
        "cat": ("echo reads; cat", "reads\n", b"typed\r\x04", 0),
        "read": ("sh -c 'printf Name:; read x; exit 8'", "Name:", b"me\r", 8),
        "shell": ("PS1='sh# ' sh", "sh# ", b"exit 2\r", 2),
        "nested": (f"{kind}", "# ", b"exit 2\r", 2),
    }[program]
    with PlainShell(kind, home, PS1="# ") as shell:
        shell.start(command)
        result = shell.wait(0.3)
        assert result.outcome is None
        deadline = time.monotonic() + DEADLINE_S
        while wait_for not in result.output and time.monotonic() < deadline:
            result = shell.wait(0.1)
        assert result.outcome is None, result
        assert wait_for in result.output
        shell.type(keys)
        exact(shell.wait(), code)
        works(shell)


@pytest.mark.parametrize("kind", POSIX)
def test_nested_shell_with_exported_prompt_keeps_the_command_open(kind, home):
    with PlainShell(kind, home) as shell:
        shell.run("export PS0 PS1 PROMPT_COMMAND")
        shell.start(f"echo outer; {kind}")
        poll_blocking(lambda: shell.wait(0.05).output.startswith("outer\n"))
        shell.type(b"echo inner\r")
        poll_blocking(lambda: "\ninner\n" in shell.wait(0.05).output)
        assert shell.wait(0.5).outcome is None
        shell.type(b"exit 5\r")
        result = shell.wait()
        exact(result, 5)
        assert result.output.startswith("outer\n")
        works(shell)


@pytest.mark.costly
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    # Not `intr x`: a key of the typed line is a signal then, and only the driver types it again.
    "modes",
    ["raw -echo", "-icanon", "-icrnl", "-opost", "-isig", "eof x", "cols 20"],
)
def test_terminal_modes_of_a_command_do_not_break_the_next(kind, modes, home):
    with PlainShell(kind, home) as shell:
        exact(shell.run(f"stty {modes}"), 0, "")
        result = shell.run("echo one; echo two")
        exact(result, 0)
        assert result.raw.replace(b"\r", b"") == b"one\ntwo\n"
        works(shell)


@pytest.mark.parametrize("kind", ALL)
def test_interrupted_command_ends_with_130(kind, home):
    with PlainShell(kind, home) as shell:
        # A shell may ignore Ctrl-C until a program is in the foreground, so the program prints.
        shell.start("sh -c 'echo begun; exec sleep 100'; echo never")
        poll_blocking(lambda: shell.wait(0.05).output == "begun\n")
        shell.interrupt()
        result = shell.wait()
        exact(result, 130)
        assert "never" not in result.output
        works(shell)


@pytest.mark.parametrize("kind", ALL)
def test_suspended_command_leaves_the_shell_usable(kind, home):
    with PlainShell(kind, home) as shell:
        shell.start("sh -c 'echo begun; kill -STOP $$; echo resumed'")
        result = shell.wait()
        assert result.outcome.boundary == "exact"
        exact(shell.run("kill %1 2>/dev/null; kill -CONT %1; wait; true"), 0)
        works(shell)


@pytest.mark.parametrize("kind", ALL)
def test_background_job_does_not_delay_the_end(kind, home):
    with PlainShell(kind, home) as shell:
        before = time.monotonic()
        exact(shell.run("sleep 100 &"), 0)
        assert time.monotonic() - before < 50
        exact(shell.run("echo meanwhile"), 0, "meanwhile\n")
        shell.run(f"kill {'$last_pid' if kind == 'fish' else '$!'}; wait")
        works(shell)


@pytest.mark.parametrize("kind", ALL)
def test_alias_works_in_later_lines_and_commands(kind, home):
    with PlainShell(kind, home) as shell:
        exact(shell.run("alias hello='echo aliased'\nhello"), 0, "aliased\n")
        exact(shell.run("hello"), 0, "aliased\n")


def test_traces_of_bash_show_only_the_command(home):
    with PlainShell("bash", home) as shell:
        exact(shell.run("set -x"), 0, "")
        exact(shell.run("echo traced"), 0, "++ echo traced\ntraced\n")
        exact(shell.run("false"), 1, "++ false\n")
        exact(shell.run("set +x"), 0, "++ set +x\n")
        works(shell)


def test_traces_of_zsh_show_only_the_command(home):
    with PlainShell("zsh", home) as shell:
        exact(shell.run("PS4='+ '; set -x"), 0, "")
        exact(shell.run("echo traced"), 0, "+ echo traced\ntraced\n")
        exact(shell.run("false"), 1, "+ false\n")
        exact(shell.run("set +x"), 0, "+ set +x\n")
        works(shell)


@pytest.mark.parametrize("kind", POSIX)
def test_verbose_shell_keeps_boundaries(kind, home):
    with PlainShell(kind, home) as shell:
        exact(shell.run("set -v"), 0)
        result = shell.run("echo shown")
        exact(result, 0)
        # bash prints the line of its PROMPT_COMMAND, too.
        assert result.output.startswith("echo shown\nshown\n")
        shell.run("set +v")
        works(shell)


@pytest.mark.parametrize("kind", ALL)
def test_forged_marks_are_output_of_the_command(kind, home):
    forged = "\\033]133;D;0\\007\\033]133;D;9;aid=0123;pid=1;n=1\\007\\033]133;C\\007"
    with PlainShell(kind, home) as shell:
        result = shell.run(f"printf 'before{forged}after'; sh -c 'exit 2'")
        exact(result, 2, "beforeafter")
        assert result.raw.count(b"\x1b]133;") == 3


@pytest.mark.parametrize("kind", ["bash"])
def test_replayed_marks_of_earlier_commands_have_no_effect(kind, home):
    with PlainShell(kind, home) as shell:
        shell.run("echo old")
        old = bytes(shell.all)
        with open(f"{home}/typescript", "wb") as file:
            file.write(old)
        result = shell.run("echo first; cat typescript; echo last; sh -c 'exit 4'")
        exact(result, 4)
        assert result.output.startswith("first\n")
        assert result.output.endswith("last\n")


@pytest.mark.parametrize("kind", POSIX)
def test_command_that_evaluates_the_hooks_does_not_end_early(kind, home):
    hooks = {
        "bash": 'eval "$PROMPT_COMMAND"; __acpterm_precmd 0',
        "zsh": "for f in $precmd_functions; do $f; done",
    }[kind]
    with PlainShell(kind, home) as shell:
        exact(shell.run(f"{hooks}; echo after; sh -c 'exit 3'"), 3, "after\n")
        works(shell)


@pytest.mark.parametrize("kind", ALL)
def test_removed_report_makes_the_boundary_unknown(kind, home):
    # The report's file cannot be written.
    with PlainShell(kind, home) as shell:
        result = shell.run(f"rm -rf {shell.directory.path}")
        assert result.outcome.boundary == "unknown"
        assert result.outcome.exit_code is None
        works(shell)


@pytest.mark.parametrize("kind", ALL)
def test_forged_report_makes_the_boundary_unknown(kind, home):
    with PlainShell(kind, home) as shell:
        # A directory in place of the file: the shell cannot replace it.
        result = shell.run(f"mkdir {shell.directory.path}/1.end")
        assert result.outcome.boundary == "unknown"
        os.rmdir(f"{shell.directory.path}/1.end")
        works(shell)


@pytest.mark.parametrize("kind", ALL)
def test_written_side_channel_does_not_confuse_the_driver(kind, home):
    with PlainShell(kind, home) as shell:
        path = shell.directory.path
        exact(shell.run(f"echo garbage >{path}/1.end; sh -c 'exit 5'"), 5, "")
        exact(shell.run(f"echo 0 >{path}/9.end; sh -c 'exit 6'"), 6, "")


@pytest.mark.parametrize("kind", POSIX)
def test_closed_descriptors_do_not_stop_the_reports(kind, home):
    with PlainShell(kind, home) as shell:
        exact(shell.run('for fd in 3 4 5 6 7 8 9; do eval "exec $fd>&-"; done'), 0, "")
        exact(shell.run("false"), 1, "")
        works(shell)


@pytest.mark.parametrize("kind", ALL)
def test_command_of_100_kb_runs(kind, home):
    lines = "\n".join(f"echo {'x' * 90}{i}" for i in range(1000))
    with PlainShell(kind, home) as shell:
        result = shell.run(lines)
        exact(result, 0)
        assert result.output == "".join(f"{'x' * 90}{i}\n" for i in range(1000))
        word = "y" * 100_000
        exact(shell.run(f"echo {word}"), 0, f"{word}\n")


@pytest.mark.parametrize("kind", ALL)
def test_program_that_reads_the_terminal_does_not_read_the_next_command(kind, home):
    with PlainShell(kind, home) as shell:
        exact(shell.run("timeout 0.3 cat >/dev/null </dev/tty"), 124)
        exact(shell.run("timeout --foreground 0.3 cat >/dev/null"), 124)
        works(shell)


def test_traps_of_bash_keep_boundaries(home):
    with PlainShell("bash", home) as shell:
        exact(shell.run("trap 'echo debug' DEBUG"), 0)
        exact(shell.run("false"), 1)
        result = shell.run("echo one")
        exact(result, 0)
        assert result.output.replace("debug\n", "") == "one\n"
        # `source` restores the trap at its end, unless functions inherit it.
        shell.run("set -T")
        shell.run("trap - DEBUG; set +T; trap 'echo err' ERR")
        exact(shell.run("false"), 1, "err\n")
        exact(shell.run("false && true"), 1, "")
        exact(shell.run("echo $?"), 0, "1\n")
        shell.run("trap - ERR; trap 'echo returned' RETURN")
        assert shell.run("sh -c 'exit 3'").code == 3
        shell.run("trap - RETURN; trap 'echo exiting' EXIT")
        result = shell.run("exit 6")
        assert (result.has_ended, result.output) == (True, "exiting\n")


def test_traps_of_zsh_keep_boundaries(home):
    with PlainShell("zsh", home) as shell:
        exact(shell.run("trap 'echo debug' DEBUG"), 0)
        exact(shell.run("false"), 1)
        shell.run("trap - DEBUG; trap 'echo err' ERR")
        exact(shell.run("false"), 1, "err\n")
        shell.run("trap - ERR")
        shell.run("trap 'echo exiting' EXIT")
        works(shell)


def test_bash_that_skips_all_commands_is_unknown(home):
    with PlainShell("bash", home) as shell:
        result = shell.run("shopt -s extdebug; trap false DEBUG")
        result = shell.run("echo skipped")
        assert result.outcome.boundary == "unknown", result
        assert result.outcome.exit_code is None


@pytest.mark.parametrize(
    "command",
    [
        "unset PROMPT_COMMAND",
        "PROMPT_COMMAND=",
        "PROMPT_COMMAND='echo prompt'",
        "PROMPT_COMMAND=(a b)",
        "PS1=mine; PS0=; unset PROMPT_COMMAND",
        "PS1='a$(false)b'",
        "shopt -u promptvars; PS1='$ '",
    ],
)
def test_bash_repairs_replaced_prompts(command, home):
    with PlainShell("bash", home) as shell:
        exact(shell.run(command), 0, "")
        exact(shell.run("sh -c 'exit 3'"), 3, "")
        works(shell)


def test_interrupted_command_that_removed_the_hooks_is_unknown(home):
    with PlainShell("bash", home) as shell:
        shell.start("unset PROMPT_COMMAND; sh -c 'echo begun; exec sleep 100'")
        poll_blocking(lambda: shell.wait(0.05).output == "begun\n")
        shell.interrupt()
        result = shell.wait()
        assert result.outcome.boundary == "unknown"
        assert result.outcome.detail == (
            "the shell displayed its prompt without a mark of the command's end"
        )
        works(shell)


@pytest.mark.parametrize(
    "command", ["precmd_functions=() preexec_functions=()", "precmd() { echo mine; }", "PS1='x '"]
)
def test_zsh_repairs_replaced_prompts(command, home):
    with PlainShell("zsh", home) as shell:
        exact(shell.run(command), 0, "")
        exact(shell.run("sh -c 'exit 3'"), 3, "")
        works(shell)


@pytest.mark.parametrize(
    "command", ["function fish_prompt; echo mine; end", "functions -e fish_prompt", "bind -e --all"]
)
def test_fish_works_with_replaced_prompts(command, home):
    with PlainShell("fish", home) as shell:
        exact(shell.run(command), 0, "")
        exact(shell.run("sh -c 'exit 3'"), 3, "")
        works(shell)


@pytest.mark.parametrize("kind", ALL)
def test_functions_named_like_builtins_have_no_effect(kind, home):
    names = ["printf", "source", "cd", "echo"]
    if kind != "fish":
        names += ["local", "return", "shift", "eval", "unset", "test", "set"]
    define = "function %s; true; end" if kind == "fish" else "%s() { true; }"
    with PlainShell(kind, home) as shell:
        exact(shell.run("\n".join(define % name for name in names)), 0, "")
        exact(shell.run("sh -c 'echo out; exit 3'"), 3, "out\n")
        exact(shell.run("sh -c 'echo out; exit 4'"), 4, "out\n")


@pytest.mark.parametrize("kind", POSIX)
def test_shell_without_printf_has_no_boundaries_but_runs_commands(kind, home):
    with PlainShell(kind, home) as shell:
        command = "enable -n printf" if kind == "bash" else "disable printf"
        assert shell.run(command).outcome.boundary == "unknown"
        result = shell.run("echo out >file")
        assert (result.outcome.boundary, result.outcome.exit_code) == ("unknown", None)
    assert Path(home, "file").read_text() == "out\n"


@pytest.mark.parametrize("kind", POSIX)
def test_shell_with_another_builtin_runs_nothing(kind, home):
    with PlainShell(kind, home) as shell:
        assert shell.run("builtin() { true; }").outcome.boundary == "unknown"
        assert shell.run("echo out >file").outcome.boundary == "unknown"
    assert not Path(home, "file").exists()


def test_aliases_named_like_keywords_have_no_effect(home):
    with PlainShell("bash", home) as shell:
        exact(shell.run("alias builtin=false .=false printf=false"), 0, "")
        exact(shell.run("sh -c 'exit 3'"), 3, "")


@pytest.mark.costly
@pytest.mark.parametrize("kind", POSIX)
@pytest.mark.parametrize(
    "command",
    [
        "IFS=0123456789", "IFS=", "IFS=/", "set -C", "set -u", "set -f", "set -a", "set +m",
        "set -b", "set -h", "umask 777", "LC_ALL=C; export LC_ALL", "set -- a b",
        "shopt -s nullglob failglob || setopt null_glob", "set -o vi", "set -o emacs", "PATH=",
        "set -o posix || emulate sh", "shopt -s expand_aliases || setopt ksh_arrays", "TERM=dumb",
        "readonly PS1", "unset PS1 PS2 PS4 HOME", "export POSIXLY_CORRECT=1",
    ],
)  # fmt: skip
def test_settings_of_the_shell_do_not_break_boundaries(kind, command, home):
    with PlainShell(kind, home) as shell:
        result = shell.run(command)
        assert result.outcome.boundary == "exact", result
        result = shell.run("(exit 30)")
        exact(result, 30, "")
        result = shell.run("echo 10/20")
        exact(result, 0, "10/20\n")


def test_zsh_without_its_input_lives_on(home):
    with PlainShell("zsh", home) as shell:
        exact(shell.run("exec </dev/null"), 0)
        works(shell)


def test_bash_without_its_input_ends_after_the_command(home):
    with PlainShell("bash", home) as shell:
        exact(shell.run("exec </dev/null"), 0)
        assert shell.run("echo never").has_ended


@pytest.mark.parametrize("kind", POSIX)
def test_redirected_shell_reports_exactly(kind, home):
    with PlainShell(kind, home) as shell:
        exact(shell.run("exec >out 2>&1"), 0, "")
        exact(shell.run("echo to the file; sh -c 'exit 5'"), 5, "")
        exact(shell.run("exec >/dev/tty 2>&1"), 0, "")
        exact(shell.run("cat out | grep -c 'to the file'"), 0, "1\n")
        works(shell)


@pytest.mark.costly
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "output", ["x", "\\033[2J\\033[H", "\\033[?1049hfull", "\\033]0;title", "\\303", "\\033",
               "\\033]133;D;", "a\\000b", "\\r\\n\\r", "\\033P"],
)  # fmt: skip
def test_last_bytes_of_the_output_are_exact(kind, output, home):
    expected = output.encode().decode("unicode_escape").encode("latin-1").replace(b"\n", b"\r\n")
    with PlainShell(kind, home) as shell:
        result = shell.run(f"printf '{output}'")
        exact(result, 0)
        assert result.raw == expected
        works(shell)


@pytest.mark.parametrize("kind", ALL)
def test_clear_leaves_the_boundary_exact(kind, home):
    with PlainShell(kind, home) as shell:
        exact(shell.run("echo a; clear; echo b"), 0)
        works(shell)


@pytest.mark.parametrize("kind", ALL)
def test_typed_line_is_in_no_output_and_no_history(kind, home):
    with PlainShell(kind, home) as shell:
        shell.run("echo one")
        # The line that runs stays in the memory of zsh until the next line.
        assert kind == "zsh" or "acpterm" not in shell.run("history").output
        assert shell.run("echo two").output == "two\n"
        shell.start("exit")
        shell.wait()
    for directory, _, names in os.walk(home):
        for name in names:
            if "history" in name:
                with open(os.path.join(directory, name), errors="replace") as file:
                    assert "acpterm" not in file.read()


@pytest.mark.parametrize("kind", ALL)
def test_line_that_the_user_has_begun_is_not_executed(kind, home):
    with PlainShell(kind, home) as shell:
        shell.type(b"touch typed; touch also")
        works(shell)
        exact(shell.run("ls"), 0)
        assert "typed" not in os.listdir(home)


STARSHIP = r"""
starship_preexec() { STARSHIP_START=1; }
starship_precmd() {
  local saved=$?
  if [[ -n ${STARSHIP_PROMPT_COMMAND-} ]]; then eval "$STARSHIP_PROMPT_COMMAND"; fi
  PS1="$(printf '\n\[\e[1;32m\]%s\[\e[0m\] ' "$saved")"
}
if [[ $- != *d* ]]; then STARSHIP_PROMPT_COMMAND=$PROMPT_COMMAND; fi
PROMPT_COMMAND=starship_precmd
PS0='$(starship_preexec)'
set -o vi
HISTCONTROL=ignoredups
alias ls='ls --color' cd='builtin cd'
return 0
"""


def test_prompt_like_starships_in_the_users_rc(home):
    with open(f"{home}/.bashrc", "w") as file:
        file.write(STARSHIP)
    with PlainShell("bash", home) as shell:
        exact(shell.run("sh -c 'exit 3'"), 3, "")
        works(shell)
        assert b"\x1b[1;32m3\x1b[0m" in shell.all


def test_prompt_like_starships_that_a_command_installs(home):
    with PlainShell("bash", home) as shell:
        exact(shell.run(STARSHIP.replace("return 0", "")), 0, "")
        exact(shell.run("sh -c 'exit 3'"), 3, "")
        exact(shell.run("sh -c 'exit 4'"), 4, "")
        works(shell)


def test_users_rc_of_zsh_is_read_with_its_own_directory(home):
    os.mkdir(f"{home}/zsh")
    with open(f"{home}/.zshenv", "w") as file:
        file.write("ZDOTDIR=$HOME/zsh\n")
    with open(f"{home}/zsh/.zshrc", "w") as file:
        file.write("alias mine='echo rc in $ZDOTDIR'\nprecmd() { echo user precmd; }\nset -e\n")
    with PlainShell("zsh", home) as shell:
        exact(shell.run("mine"), 0, f"rc in {home}/zsh\n")
        exact(shell.run("true"), 0, "")
