"""Commands as text, as questions and lists show them."""

import shlex

import pytest

from acpterm.runtime.command_line import command_line


@pytest.mark.parametrize(
    "words",
    ["sh -c", "bash -lc", "bash -l -c", "/bin/bash -e -x -uc", "/usr/local/bin/zsh -ic", "dash -c"],
)
def test_line_that_a_shell_executes_is_shown_without_the_shell(words):
    command, *options = words.split()
    assert command_line(command, [*options, "ls | wc -l"]) == "ls | wc -l"


@pytest.mark.parametrize(
    "words",
    [
        "bash ./script -c ls",
        "bash -c 'rm -rf x' -c ls",
        "bash -c 'rm -rf x' ls",
        "bash --rcfile rc -ic ls",
        "bash -o pipefail -c ls",
        "bash -s -c ls",
        "bash -- -c ls",
        "./bash -c ls",
        "/tmp/bash -c ls",
        "bin/sh -c ls",
        "bash5 -c ls",
        "env sh -c ls",
        "bash -c",
    ],
)
def test_command_that_executes_anything_else_is_shown_whole(words):
    command, *args = shlex.split(words)
    assert command_line(command, args) == shlex.join([command, *args])


def test_command_without_arguments_is_shown_unchanged():
    assert command_line("echo $HOME | cat", []) == command_line("echo $HOME | cat", None)
    assert command_line("echo $HOME | cat", None) == "echo $HOME | cat"
