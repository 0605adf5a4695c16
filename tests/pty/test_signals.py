"""Names and numbers of signals."""

import signal

import pytest

from acpterm.pty.signals import name_of, number_of
from tests.support.cases import each_case

REALTIME = pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="no real-time signals")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGINT", "SIGSEGV", "SIGHUP", "SIGCHLD"])
def test_signal_name_converts_both_ways(name):
    number = getattr(signal, name)
    assert name_of(number) == name
    assert number_of(name) == number


@REALTIME
@pytest.mark.parametrize("offset", [1, 3, 15, 30])
def test_realtime_signal_is_named_relative_to_the_first(offset):
    number = signal.SIGRTMIN + offset
    assert name_of(number) == f"SIGRTMIN+{offset}"
    assert number_of(f"SIGRTMIN+{offset}") == number


@REALTIME
def test_first_and_last_realtime_signal_names_convert_back():
    assert name_of(signal.SIGRTMIN) == "SIGRTMIN"
    assert number_of(name_of(signal.SIGRTMAX)) == signal.SIGRTMAX


def test_every_valid_signal_has_a_unique_name():
    names = [name_of(number) for number in signal.valid_signals()]
    assert len(set(names)) == len(names)
    assert all(name.startswith("SIG") for name in names)


def test_signal_without_a_name_is_named_by_its_number():
    assert name_of(500) == "SIG500"


def test_every_signal_name_converts_back():
    for number in range(1, signal.NSIG):
        assert number_of(name_of(number)) == number


@pytest.mark.parametrize("name", ["TERM", "term", "sigterm", "SigTerm", "SIGTERM"])
def test_number_of_ignores_prefix_and_case(name):
    assert number_of(name) == signal.SIGTERM


@each_case(
    "name",
    ["", "SIG", "SIGNOPE", "15", "SIG_DFL", "SIGRTMIN+99", "SIG15", "SIG500", "SIG032", "TERM "],
)
def test_number_of_raises_an_error_with_the_unknown_name(name):
    with pytest.raises(ValueError, match="there is no signal") as caught:
        number_of(name)
    assert repr(name) in str(caught.value)
