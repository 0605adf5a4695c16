"""Programs that real shells start, compared with the programs that were judged.

Each line is run by several shells, with marker programs that record their names: `tsc` is safe,
`mark` unknown, and `sudo` dangerous. No shell may start a program that no profile would have
stopped for what it is.
"""

import os
import shlex
import shutil
import subprocess
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acpterm.config.profiles import BUILTIN
from acpterm.policy.judge import Judge
from tests.support.depth import examples

EXAMPLES = examples(150)
LINES_MAX = 20
"""Maximum lines that one process of a shell runs."""
TIMEOUT_S = 10
TIMEOUT = shutil.which("timeout")
SHELLS = ("dash", "bash", "busybox", "zsh")
LINES = (
    "echo hi &>/dev/null sudo x",
    "echo hi &>>/dev/null sudo x",
    "echo hi &\\\n>/dev/null sudo x",
    "echo hi 2>&1 &>f sudo x",
    "echo hi >&/dev/null sudo x",
    "echo hi >& sudo; sudo x",
    "tsc &>/dev/null mark",
    "tsc |& mark",
    "tsc |& sudo x",
    "((sudo x))",
    "((sudo -x))",
    "(\\\n(sudo -x))",
    "((sudo))",
    "(\\\n(sudo x))",
    "((mark))",
    "((1+1)); mark",
    "if ((mark)); then echo a; fi",
    "echo $((sudo x) )",
    "echo $((mark))",
    "echo $'a\\'; sudo x #'",
    "echo $'a\\'; mark #'",
    "echo $\\\n'a\\'; sudo x #'",
    "echo \\$'a'; mark",
    "echo \"$'a\\\"; sudo x #'\"",
    'echo "$\'"; sudo x #"',
    'tsc $"a"; mark',
    "echo <(sudo x)",
    "echo <(mark) {a,b}",
    "echo >(mark)",
    "{mark,a}",
    "{sudo,x}",
    "sud{o,o} x",
    "{sudo x}",
    "[[ a || sudo ]]",
    "[[ a && mark ]]",
    "[[ a || (sudo) ]]",
    "echo [[:alpha:]]; mark",
    "echo $[ 1; sudo x ]",
    "echo $[ 1; mark ]",
    "echo $[ 1 | sudo ]",
    "echo $\\\n[ 1 | sudo ]",
    "tsc $\\\n'a\\'; sudo x #'",
    "tsc &\\\n>/dev/null mark",
    "[\\\n[ a || sudo ]]",
    "function f { sudo x; }; f",
    "function sudo { echo; }; sudo",
    "case a in a) echo;& b) sudo x;; esac",
    "case a in a) echo;;& *) mark;; esac",
    "coproc sudo x",
    "cat <<<x; sudo x",
    "tsc <<<$(mark)",
    "=sudo x",
    "=mark",
    "repeat 2 sudo x",
    "noglob sudo x",
    "- sudo x",
    "if [[ a ]] sudo x",
    "for x (a b) sudo $x",
    "echo a &| sudo x",
    "echo a &! sudo x",
    "echo 'a'\\''; sudo x '",
    "echo *(e:'sudo x':)",
    "echo ${(e):-'$(sudo x)'}",
    "echo ${x:-$'}'; sudo x; }",
    "echo ${x//'}'/; sudo x; }",
    "emulate sh -c 'sudo x'",
    "eval 'echo a &>/dev/null sudo x'",
    "eval 'tsc &>/dev/null mark'",
    "cat <<E\n$'a\\'\nE\nsudo x",
    "echo a # $'\nsudo x #'",
    "! ((mark))",
    "time ((sudo x))",
    "x=((sudo x))",
    "f() ((sudo x)); f",
    "tsc; (( 1 )) || sudo x",
    "tsc ==\nsudo x",
    "tsc =~ \nmark",
    "echo a == #\nsudo x",
    "(tsc ==\nsudo x)",
    "eval ``sudo x`,b}`",
    "tsc ``mark x`,b}`",
    "echo \"${x:-'`sudo x`'}\"",
    "echo ${x:-`sudo x`}",
    'echo "${x#`sudo x`}"',
    "echo `echo \\`sudo x\\``",
    "cat <<E\n`sudo x`\nE",
    "cat <<E\n\t$(sudo x)\nE",
    "cat <<-E\n\t`sudo x`\n\tE",
    "0<f sudo x; 0</dev/null sudo x",
    "0</dev/null mark",
    "time (sudo x)",
    "time (mark)",
    "$\\\n(sudo x)",
    "$\\\n(mark)",
    "A\\\n=1 sudo x",
    "1\\\n>f sudo x",
    "func\\\ntion f { sudo x; }; f",
    "{fd\\\n}>f sudo x",
    "alias tsc='echo a; '\ntsc sudo x",
    "alias tsc=mark\ntsc",
    "shopt -s expand_aliases; alias q=\"echo '\"\nq '; sudo x #'",
    "set -- a; ${1:+sudo} x",
    "hash -p $PWD/programs/sudo tsc; tsc",
    "mapfile -C sudo -c1 <<<x",
    "compgen -C 'sudo x'",
    "echo ${:-sudo}; ${:-sudo} x",
)  # fmt: skip
TOKENS = [
    *["tsc ", "mark ", "sudo x ", "echo a "] * 3,
    "&>", "&>>", ">&", "|&", "((", "))", "$'", "'", "\\", "<(", ">(", ")", "(", "{", "}", "{a,",
    ",b}", "[[ ", " ]]", " || ", " && ", ";", "\n", "\\\n", "#", '"', "$[", "]", "`", "$(", "${x:-",
    "f ", "/dev/null ", "function f ", "<<<", "<<E\n", "\nE\n", "|", "&", "&|", "! ", "if ",
    "; then ", "; fi", "$", " ", "a", "=", "case a in a) ", ";;", ";&", " esac", "coproc ", "f() ",
    "== ", "=~ ", "2", "0", ">", "<", "\\`", "<<-E\n\t", "time ", "repeat 1 ",
    "for x (a) ", "*(e:", "${(e):-",
]  # fmt: skip
lines = st.one_of(
    st.lists(st.sampled_from(TOKENS), min_size=2, max_size=10).map("".join),
    st.tuples(
        st.sampled_from(["tsc ", "echo a ", "eval ", ""]),
        st.sampled_from(
            ["&>", "&>>", ">&", "|&", "((", "$'", "<(", "{a,b}", "[[ ", "$[", "\\", "'"]
        ),
        st.lists(st.sampled_from(TOKENS), max_size=4).map("".join),
        st.sampled_from(["sudo x", "mark", "; sudo x", "; sudo x #", "; mark #"]),
        st.lists(st.sampled_from(TOKENS), max_size=3).map("".join),
    ).map("".join),
)


@pytest.fixture(scope="module", params=SHELLS)
def shell(request):
    path = shutil.which(request.param)
    if path is None or TIMEOUT is None:
        pytest.skip(f"requires {request.param} and timeout")
    return [path, "sh"] if request.param == "busybox" else [path]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Return a directory with marker programs, which append their names to the file $STARTED."""
    directory = tmp_path_factory.mktemp("programs")
    for name in ("tsc", "mark", "sudo", "cat"):
        text = "exec /bin/cat" if name == "cat" else f"echo {name} >>$STARTED"
        (directory / name).write_text(f"#!/bin/sh\n{text}\n")
        (directory / name).chmod(0o755)
    return directory


def started(shell, several, programs, directory):
    """Run lines in a shell; return the names of the programs that each of them has started."""
    (work := directory / "work").mkdir(exist_ok=True)
    with suppress(FileExistsError):
        (work / "programs").symlink_to(programs)
    for number in range(len(several)):
        (directory / str(number)).write_bytes(b"")
    script = "".join(
        f"( export STARTED={directory}/{number}; eval {shlex.quote(line)}\nwait ) 9>&1 >/dev/null\n"
        for number, line in enumerate(several)
    )
    subprocess.run(
        # A line may make the shell wait forever. All its processes are in the group of timeout(1).
        [TIMEOUT, "--signal=KILL", str(TIMEOUT_S), *shell, "-c", script],
        check=False,
        cwd=work,
        env={"PATH": str(programs), "LC_ALL": "C.UTF-8", "HOME": str(work)},
        stdin=subprocess.DEVNULL,
        # Until the last program in the background has ended.
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return [set((directory / str(number)).read_text().split()) for number in range(len(several))]


def verdicts(shell, line):
    """Return the verdicts of each profile on a line that the shell reads: as shell text, and -c."""
    name = os.path.basename(shell[-1])
    judge = Judge()
    for profile in ("guarded", "confirm", "pool"):
        chosen = BUILTIN[profile]
        yield profile, judge.judge(line, None, profile=chosen, shell=name)
        yield profile, judge.judge(shell[0], [*shell[1:], "-c", "--", line], profile=chosen)


def check(shell, several, found):
    for line, names in zip(several, found, strict=True):
        for profile, verdict in verdicts(shell, line):
            report = (line, shell, names, profile, verdict)
            if "sudo" in names:
                assert verdict.decision == ("deny" if profile == "pool" else "ask"), report
            if "mark" in names and profile == "confirm":
                assert verdict.decision == "ask", report
            if verdict.level == "safe":
                judged = {word for part in verdict.parts for word in part.words[:1]}
                assert names <= judged, report


@pytest.mark.costly
def test_no_shell_starts_a_program_that_was_not_judged(shell, programs, tmp_path):
    found = started(shell, LINES, programs, tmp_path)
    assert sum("sudo" in names for names in found) > 9
    assert sum("mark" in names for names in found) > 5
    check(shell, LINES, found)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_no_shell_starts_a_program_that_was_not_judged_in_any_line(shell, programs, tmp_path):
    count = 0

    @settings(max_examples=EXAMPLES)
    @given(st.lists(lines, min_size=LINES_MAX // 2, max_size=LINES_MAX))
    def check_lines(several):
        nonlocal count
        found = started(shell, several, programs, tmp_path)
        count += sum("sudo" in names for names in found)
        check(shell, several, found)

    check_lines()
    assert count > EXAMPLES // 10
