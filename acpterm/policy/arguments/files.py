"""Checks of the arguments of small tools, such as find, sort, diff, tee, rg, fd and hostname."""

import itertools
import re
from collections.abc import Sequence
from typing import Final

from acpterm.policy.arguments.options import because, is_outside, matching_option

_UNIQ_VALUES: Final = frozenset(("-f", "-s", "-w"))
_FIND_UNSAFE: Final = re.compile(r"-(?:exec|ok|delete|fprint|fls|files0-from)")
_HOSTNAME_SAFE: Final = re.compile(
    r"-[aAdfiIsy]+|--(?:fqdn|long|short|domain|ip-address|all-ip-addresses|all-fqdns)"
)


def find(arguments: Sequence[str]) -> str:
    """Return why `find` executes, deletes or writes something; empty if it does not."""
    return because(next((one for one in arguments if _FIND_UNSAFE.match(one)), ""))


def sort(arguments: Sequence[str]) -> str:
    """Return why `sort` could execute a program or write a file; empty if it could not."""
    return because(
        matching_option(
            arguments, "oT", ("--output", "--compress-program", "--temporary-directory"), "ktS"
        )
    )


def tree(arguments: Sequence[str]) -> str:
    """Return why `tree` could write a file; empty if it could not."""
    return because(matching_option(arguments, "oR", ("--output",), "LPIHT"))


def uniq(arguments: Sequence[str]) -> str:
    """Return `it writes FILE` if there is a second operand `FILE`; otherwise an empty string."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    operands = [
        one
        for before, one in itertools.pairwise(("", *arguments[:end]))
        if before not in _UNIQ_VALUES and (one == "-" or not one.startswith("-"))
    ]
    operands += arguments[end + 1 :]
    return f"it writes {operands[1]}" if len(operands) > 1 else ""


def diff(arguments: Sequence[str]) -> str:
    """Return why `diff` executes a program, `pr`; empty if it does not."""
    return because(matching_option(arguments, "l", ("--paginate",), "UCIWDFSxX"))


def tee(arguments: Sequence[str]) -> str:
    """Return why `tee` could write elsewhere than to visible files below the working directory."""
    for argument in arguments:
        if argument.startswith("-") and argument != "-":
            if argument in ("-a", "-i", "-p", "--append", "--ignore-interrupts"):
                continue
            return f"the option {argument} is not known"
        if argument in ("/dev/null", "/dev/stdout", "/dev/stderr"):
            continue
        if is_outside(argument) or any(
            part.startswith(".") and part != "." for part in argument.split("/")
        ):
            return f"it writes {argument}"
    return ""


def hostname(arguments: Sequence[str]) -> str:
    """Return why `hostname` could set the host's name; empty if it only prints the name."""
    wrong = next((one for one in arguments if not _HOSTNAME_SAFE.fullmatch(one)), "")
    return f"{wrong} may set the name" if wrong else ""


def ipconfig(arguments: Sequence[str]) -> str:
    """Return why `ipconfig` could change the network's settings; empty if it only prints."""
    if not arguments or arguments[0] in ("/all", "getifaddr", "getpacket", "getoption", "ifcount"):
        return ""
    return f"{arguments[0]} may change the configuration"


def rg(arguments: Sequence[str]) -> str:
    """Return why `rg` executes a program; empty if it does not."""
    return because(
        matching_option(arguments, "z", ("--pre", "--hostname-bin", "--search-zip"), "efgmtABC")
    )


def fd(arguments: Sequence[str]) -> str:
    """Return why `fd` executes a program; empty if it does not."""
    return because(matching_option(arguments, "xX", ("--exec", "--exec-batch"), "eEtdSoc"))
