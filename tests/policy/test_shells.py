"""Words of plain lines: those that are judged are those that real shells execute.

Each shell runs lines with functions that print their arguments. A line that is judged as plain, and
all of whose words are literal, has to execute exactly these words, in each shell.
"""

import shlex
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acpterm.policy.syntax.parse import parse
from tests.support.depth import examples

EXAMPLES = examples(300)
LINES_MAX = 20
"""Maximum lines that one process of a shell runs."""
TIMEOUT_S = 30
# One write for each command, so that those of a pipeline do not mix.
FUNCTIONS = "".join(
    f"{name}() {{ printf '%s\\0' $(($# + 1)) {name} \"$@\" >&9; }}\n" for name in "pq"
)
PIECES = [
    *"ab1-=:.,%@+^]é",
    "''",
    '""',
    "'a b'",
    "'\\'",
    "'$X'",
    "'#\"'",
    '"a b"',
    '"\\""',
    '"\\\\"',
    '"\\$X"',
    '"\\a"',
    '"\\\n"',
    '"\'#é"',
    "\\\\",
    "\\a",
    "\\ ",
    "\\'",
    '\\"',
    "\\#",
    "\\$",
    "\\;",
    "\\é",
    "{}",
    "{a}",
]
# With most of these, a line is not plain, or not with others beside them.
ODD_PIECES = [
    *"~{}#!$\\'\",&;|<>()`*?[\t\n",
    "\\\n",
    "$'a'",
    '$"a"',
    "$X",
    "{a,b}",
    "${",
    "if",
    "!",
]
words = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)
odd_words = st.lists(st.sampled_from(PIECES + ODD_PIECES), min_size=1, max_size=4).map("".join)
redirections = st.sampled_from(["2>/dev/null", ">/dev/null", "2>&1", "</dev/null", "1>&2"])
programs = st.sampled_from(["p", "q", "'p'", "\\q", '"p"', "p''", "\\\np"])
arguments = st.one_of(*[words] * 12, odd_words, redirections)
commands = st.builds(
    lambda program, rest: " ".join((program, *rest)), programs, st.lists(arguments, max_size=4)
)
SEPARATORS = [
    *[";", "&&", "\n", "|", ";\t", "&& \n", "||", "\\\n;"] * 3,
    "\\\n",
    "&",
    "\\",
    "",
    ";;",
]
lines = st.lists(st.tuples(commands, st.sampled_from(SEPARATORS)), max_size=3).flatmap(
    lambda pairs: st.builds(
        lambda last: " ".join([*(f"{one} {separator}" for one, separator in pairs), last]), commands
    )
)


def plain_commands(line):
    """Return the words of each command that the parser finds in a line.

    Return None if the line is not plain, if a word is not literal, or if a command is none of the
    functions `p` and `q` of this test.
    """
    script = parse(line)
    found = [command.words for command in script.commands]
    if script.problem or not all(word.is_literal for words in found for word in words):
        return None
    texts = [[word.text for word in words] for words in found]
    return texts if all(words[0] in ("p", "q") for words in texts) else None


def executed_commands(shell, several, directory):
    """Run the lines `several` in a shell; return the commands that it has executed, and its stderr.

    The commands are a list for each line, in which each command is a list of words.
    """
    results = []
    script = "".join(
        f"( eval {shlex.quote(line)} ) 9>>{number}\n" for number, line in enumerate(several)
    )
    for number in range(len(several)):
        (directory / str(number)).write_bytes(b"")
    done = subprocess.run(
        [shell, "-c", FUNCTIONS + script],
        check=False,
        cwd=directory,
        env={"PATH": "", "LC_ALL": "C.UTF-8", "HOME": "/home"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    for number in range(len(several)):
        output = iter((directory / str(number)).read_bytes().decode().split("\0")[:-1])
        results.append([[next(output) for _ in range(int(count))] for count in output])
    return results, done.stderr.decode()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["dash", "bash"])
def test_judged_words_of_plain_lines_are_those_that_a_shell_executes(name, tmp_path):
    shell = shutil.which(name)
    if shell is None:
        pytest.skip(f"needs {name}")
    count = 0

    @settings(max_examples=EXAMPLES)
    @given(st.lists(lines, min_size=1, max_size=LINES_MAX))
    def check(several):
        nonlocal count
        expected = [(line, found) for line in several if (found := plain_commands(line))]
        count += len(expected)
        results, errors = executed_commands(shell, [line for line, _ in expected], tmp_path)
        for (line, found), executed in zip(expected, results, strict=True):
            # What is behind `||` is not executed; commands of a pipeline have no order.
            is_whole = "||" not in line
            missing = [words for words in executed if words not in found]
            assert not missing, (line, found, executed, errors)
            assert not is_whole or sorted(found) == sorted(executed), (line, found, executed)

    check()
    assert count > EXAMPLES, "the lines are hardly ever plain"
