"""Updates about terminals that an agent runs itself: valid ones are decoded, others ignored."""

import json

from msgspec import Raw

from acpterm.acp.raw_json import members
from acpterm.acp.terminal_updates import (
    ExitUpdate,
    Info,
    OutputUpdate,
    ProgramExit,
    from_meta,
    from_v2,
)
from tests.support.cases import each_case


def raw(value):
    return Raw(json.dumps(value).encode())


def test_updates_of_meta_are_in_the_order_of_their_effect():
    meta = {
        "terminal_exit": {"terminal_id": "x", "exit_code": 3, "signal": None},
        "terminal_output": {"terminal_id": "x", "data": "é"},
        "terminal_info": {"terminal_id": "x", "cwd": "/p"},
        "else": 1,
    }
    assert list(from_meta(raw(meta))) == [
        Info("x", "/p", None),
        OutputUpdate("x", "é".encode()),
        ExitUpdate("x", ProgramExit(3, None)),
    ]


@each_case(
    "meta",
    [
        None,
        [],
        "x",
        {"terminal_info": None},
        {"terminal_info": {"terminal_id": 1}},
        {"terminal_output": {"terminal_id": "x"}},
        {"terminal_output": {"terminal_id": "x", "data": 5}},
        {"terminal_output": [1]},
        {"terminal_exit": {"exit_code": 1}},
    ],
)
def test_invalid_meta_yields_no_updates(meta):
    assert list(from_meta(raw(meta))) == []


@each_case(
    ("kind", "update", "expected"),
    [
        (
            "terminal_output_chunk",
            {"terminalId": "x", "data": "4pg="},
            [OutputUpdate("x", b"\xe2\x98")],
        ),
        ("terminal_output_chunk", {"terminalId": "x", "data": "no base64!"}, []),
        ("terminal_output_chunk", {"terminalId": "x"}, []),
        ("terminal_output_chunk", {"data": "eA=="}, []),
        (
            "terminal_update",
            {"terminalId": "x", "command": "make", "cwd": "/p"},
            [Info("x", "/p", "make")],
        ),
        (
            "terminal_update",
            {"terminalId": "x", "output": {"data": "eA=="}},
            [Info("x", None, None), OutputUpdate("x", b"x", whole=True)],
        ),
        # Null clears; an object marks the end, even when neither is known.
        (
            "terminal_update",
            {"terminalId": "x", "output": None, "exitStatus": None},
            [Info("x", None, None), OutputUpdate("x", b"", whole=True), ExitUpdate("x", None)],
        ),
        (
            "terminal_update",
            {"terminalId": "x", "exitStatus": {}},
            [Info("x", None, None), ExitUpdate("x", ProgramExit(None, None))],
        ),
        (
            "terminal_update",
            {"terminalId": "x", "output": 5, "exitStatus": "x"},
            [Info("x", None, None)],
        ),
    ],
)
def test_v2_update_is_decoded(kind, update, expected):
    assert list(from_v2(kind, members(raw(update)))) == expected
