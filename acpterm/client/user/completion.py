"""What terminals there are, asked in a hurry: for a shell that completes a word.

Whoever waits has just pressed a key. So nothing is started, nothing said of what goes wrong, and
`PATIENCE` is all the time there is; and it is done without trio, which takes longer to import.
"""

import json
import socket
import time
from typing import Any, Final

from acpterm import __version__
from acpterm.client.sanitize import one_line

TIMEOUT_S: Final = 0.3
"""Seconds after which there are none."""

_CHUNK: Final = 64 * 1024
# Of an id: a shorter beginning than this is not shown, even if it is the only one of its kind.
_ID_MIN: Final = 8
# Characters of what a terminal is described with.
_DESCRIPTION_MAX: Final = 60
_KIND: Final = "term_"


def terminals(path: str, *, everything: bool = True) -> list[dict[str, Any]]:
    """Ask the daemon at the person's socket for its terminals; none if it does not answer."""
    asked = [
        ("initialize", {"protocolVersion": 1, "clientInfo": _US}),
        ("_acpterm/terminal/list", {"all": everything}),
    ]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(asked)
    ]
    try:
        answer = _answer(path, "".join(f"{line}\n" for line in lines).encode(), len(asked) - 1)
        found = answer["result"]["terminals"]
        return [one for one in found if isinstance(one, dict) and "terminalId" in one]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


_US: Final = {"name": "acpterm", "version": __version__}


def _answer(path: str, said: bytes, wanted: int) -> Any:
    deadline = time.monotonic() + TIMEOUT_S
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(TIMEOUT_S)
        stream.connect(path)
        stream.sendall(said)
        rest = b""
        while True:
            stream.settimeout(max(0.001, deadline - time.monotonic()))
            data = stream.recv(_CHUNK)
            if not data or time.monotonic() > deadline:
                return None
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                message = json.loads(line)
                if message.get("id") == wanted:
                    return message


def short_ids(ids: list[str]) -> dict[str, str]:
    """Give each id's shortest beginning that no other id has, without what all begin with."""
    bare = sorted(identifier.removeprefix(_KIND) for identifier in ids)
    found = {}
    for at, one in enumerate(bare):
        beside = bare[max(at - 1, 0) : at] + bare[at + 1 : at + 2]
        length = 1 + max((_common(one, other) for other in beside), default=0)
        found[one] = one[: max(length, _ID_MIN)]
    return {identifier: found[identifier.removeprefix(_KIND)] for identifier in ids}


def _common(one: str, other: str) -> int:
    same = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        same += 1
    return same


def described(terminal: dict[str, Any]) -> str:
    """Say in a line what a terminal is."""
    return one_line(f"{terminal.get('state')}  {terminal.get('command')}", _DESCRIPTION_MAX)
