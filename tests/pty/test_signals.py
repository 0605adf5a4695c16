import signal

import pytest

from acpterm.pty.signals import name_of, number_of

REALTIME = pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="no real-time signals")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGINT", "SIGSEGV", "SIGHUP", "SIGCHLD"])
def test_a_signal_has_its_name_both_ways(name):
    number = getattr(signal, name)
    assert name_of(number) == name
    assert number_of(name) == number


@REALTIME
@pytest.mark.parametrize("offset", [1, 3, 15, 30])
def test_a_realtime_signal_is_named_from_the_first(offset):
    number = signal.SIGRTMIN + offset
    assert name_of(number) == f"SIGRTMIN+{offset}"
    assert number_of(f"SIGRTMIN+{offset}") == number


@REALTIME
def test_the_first_and_the_last_realtime_signal_have_names_that_are_read_back():
    assert name_of(signal.SIGRTMIN) == "SIGRTMIN"
    assert number_of(name_of(signal.SIGRTMAX)) == signal.SIGRTMAX


def test_every_valid_signal_has_a_name_of_its_own():
    names = [name_of(number) for number in signal.valid_signals()]
    assert len(set(names)) == len(names)
    assert all(name.startswith("SIG") for name in names)


def test_a_signal_without_a_name_is_called_by_its_number():
    assert name_of(500) == "SIG500"


def test_whatever_a_signal_is_called_is_read_back():
    for number in range(1, signal.NSIG):
        assert number_of(name_of(number)) == number


@pytest.mark.parametrize("said", ["TERM", "term", "sigterm", "SigTerm", "SIGTERM"])
def test_the_prefix_and_the_case_do_not_matter(said):
    assert number_of(said) == signal.SIGTERM


@pytest.mark.parametrize(
    "said",
    ["", "SIG", "SIGNOPE", "15", "SIG_DFL", "SIGRTMIN+99", "SIG15", "SIG500", "SIG032", "TERM "],
)
def test_what_is_no_signal_is_an_error_that_says_what_was_said(said):
    with pytest.raises(ValueError, match="there is no signal") as caught:
        number_of(said)
    assert repr(said) in str(caught.value)
