"""Judging never fails, and has a bound in time, whatever the command is."""

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpterm.config.profiles import BUILTIN
from acpterm.policy.judge import Judge
from acpterm.policy.syntax import parse
from acpterm.policy.syntax.walk import COMMANDS_MAX
from acpterm.policy.words import TooLongError
from tests.support.cases import each_case

CPU_S_MAX = 0.05
PIECES = [
    *"abrm -;|&$(){}[]<>'\"`\\\n=*?#!~/ \t",
    "rm -r ",
    "sh -c '",
    "xargs ",
    "docker exec c ",
    "<<E\n",
    "${X:-",
    "X=$X$X;",
    "git -c ",
    "eval ",
    "\u00a0",
    "env ",
    "{a,b}",
    "$(",
    "<(",
    "case x in ",
    "if ",
    "for i in ",
    "find . -exec ",
    "awk '(a b)' ",
    "\ud800",
    "$'\\x",
    "[[ ",
    "((",
    ">&",
    "2>/dev/null ",
    "$X",
    "X=;",
    "0 $X",
    "IFS=a;",
]
lines = st.one_of(
    st.text(max_size=400),
    st.lists(st.sampled_from(PIECES), max_size=300).map("".join),
    st.builds(
        lambda few, n: "".join(few) * n,
        st.lists(st.sampled_from(PIECES), min_size=1, max_size=4),
        st.integers(1, 500),
    ),
).map(lambda line: line[:4096])


def cpu_time(line, args=None):
    start = time.thread_time()
    verdict = Judge().judge(line, args, profile=BUILTIN["guarded"])
    assert verdict.parts
    return time.thread_time() - start


@pytest.mark.long
@given(lines)
def test_judge_returns_a_verdict_in_bounded_time_for_any_line(line):
    # A collection of garbage may take longer than the judgement.
    assert min(cpu_time(line) for _ in range(2)) < CPU_S_MAX


@given(st.text(max_size=50), st.lists(st.text(max_size=100), max_size=20))
def test_judge_returns_a_verdict_in_bounded_time_for_any_arguments(command, args):
    assert min(cpu_time(command, args) for _ in range(2)) < CPU_S_MAX


@pytest.mark.long
@each_case(
    "piece",
    [
        "a;",
        "a|",
        "docker ",
        "env ",
        "sudo ",
        "xargs ",
        "$(",
        "(",
        "{",
        "X=$X$X;",
        "{a,b}",
        "$a",
        "ssh 'a b' ",
        "'",
        "\\",
        "X=1 ",
        "[[",
        "((",
        "`",
        "<<A ",
        "a=b;",
        "{1..9}",
        "rm -x",
        "git -C ",
        "case x in ",
        "if ",
        "\u00a0",
        "bash <<E\n",
        'sh -c "docker exec x y" ',
        "watch 'watch watch' ",
        "a&&",
        "! ",
        "'a b' ",
    ],
)
def test_judge_returns_a_verdict_in_bounded_time_for_repetitions(piece):
    line = (piece * 4096)[:4096]
    assert min(cpu_time(line) for _ in range(3)) < CPU_S_MAX


@each_case(
    "line",
    [
        "a``" * 100 + "b" * 1000,
        "$(" * 50 + "echo \\`x\\` " + "b" * 1000 + ")" * 50,
        "cat <<E\n" + "`a` " * 2000 + "\nE",
        "cat <<E\n`a` `b`\nE\n" * 200,
        "cat >" + "$(echo \\`x\\`) " * 100,
    ],
)
def test_parse_suspects_a_bounded_number_of_texts_of_a_bounded_length(line, monkeypatch):
    texts = []
    monkeypatch.setattr(parse, "suspected", lambda text: texts.append(text) or iter(()))
    with suppress(TooLongError):
        list(parse.suspected_in(parse.parse(line).suspected))
    assert 0 < len(texts) <= COMMANDS_MAX + 1
    assert sum(map(len, texts)) <= 4 * len(line)


@pytest.mark.parametrize(
    ("program", "option", "code"),
    [
        ("python3", "-c", '\\"'),
        ("python3", "-c", "'\\'"),
        ("node", "-e", "`{"),
        ("awk", "-F:", "print"),
        ("awk", "-F:", "[("),
        ("sed", "-n", "s/a\\"),
        ("sed", "-n", "1e "),
    ],
)
def test_judge_returns_a_verdict_in_bounded_time_for_long_code(program, option, code):
    args = [option, (code * 60_000)[:60_000]]
    assert min(cpu_time(program, args) for _ in range(2)) < CPU_S_MAX
