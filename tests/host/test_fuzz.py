"""A host survives mutated messages: it answers the next valid one with a valid response.

No message can do harm, whatever the mutations make of it:

- shell text is run by `/bin/true`, the host's shell in this test;
- PATH has one directory, with `true`, `echo`, `cat` and `sleep`; absolute paths and parent
  directories are never sent, except for two known paths;
- names of other programs of this machine are never sent, as the PATH might be mutated, nor are
  escapes that could hide one, except for surrogates.

`ACPTERM_FUZZ_MESSAGES` sets the number of messages, `ACPTERM_FUZZ_SEED` the seed; a failure names
the seed.
"""

import json
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from acpterm.config import Settings
from acpterm.host.open_host import open_host
from acpterm.runtime.exec_context import current
from tests.acp.validate import validate_sent
from tests.support.depth import DEPTH

MESSAGES = int(os.environ.get("ACPTERM_FUZZ_MESSAGES", "10000" if DEPTH == "full" else "5000"))
SEED = int(os.environ.get("ACPTERM_FUZZ_SEED", str(random.SystemRandom().randrange(2**32))))
BATCH = 50
# A batch starts dozens of programs: on a busy machine that takes many seconds.
HANG_TIMEOUT_S = 90
PROGRAMS = ("true", "echo", "cat", "sleep")

# What messages must not contain: the beginning of a path, a parent directory, an escape.
UNSAFE = re.compile(rb'["\s:=]/|\.\.|//|\\(?![uU]?[dD][89a-fA-F][0-9a-fA-F]{2})')
# A string, and the colon that makes it a key.
STRINGS = re.compile(rb'"([^"]*)"(\s*:)?')

JUNK: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    1e308,
    2**31,
    2**63,
    2**64,
    -(2**63) - 1,
    10**30,
    "",
    "x",
    "é→🙂",
    "\ud800",
    "\udc00\ud800",
    "\0",
    "x" * 3000,
    [],
    {},
    [[]],
    [None, 1, "x"],
    {"x": {"x": {}}},
    [[[[[[[[[[]]]]]]]]]],
]


def test_filter_blocks_harmful_messages(tmp_path):
    fuzzer = Fuzzer(random.Random(0), tmp_path)
    harmful = [
        b'{"command":"/sbin/reboot"}',
        b'{"command":"/bin/rm"}',
        b'{"command":"\\u002fbin/rm"}',
        b'{"command":"\\/bin/rm"}',
        b'{"command":" /bin/rm"}',
        b'{"command":"../../../bin/rm"}',
        b'{"command":"rm","args":["-rf","x"]}',
        b'{"command":"r\\u006d"}',
        b'{"env":[{"name":"PATH","value":"/usr/bin"}]}',
        b'{"env":[{"name":"PATH","value":"x:/usr/bin"}]}',
        b'{"command":"sh","args":["-c","reboot"]}',
        b'{"command":"kill","args":["-9","-1"]}',
        b'{"cwd":"/"}',
    ]
    assert [line for line in harmful if fuzzer.is_safe(line)] == []
    assert [line for line in fuzzer.lines() if not fuzzer.is_safe(line)] == []


class Fuzzer:
    """Generates valid messages and mutations of them."""

    def __init__(self, rng: random.Random, directory: Path) -> None:
        self.rng = rng
        self.bin = directory / "bin"
        self.work = directory / "work"
        self.bin.mkdir()
        self.work.mkdir()
        for name in PROGRAMS:
            (self.bin / name).symlink_to(shutil.which(name))
        self.terminals: list[str] = ["term_none"]
        # `screen` may also be a program of this machine.
        self.known = [f'"{path}"'.encode() for path in (self.bin, self.work)]
        self.known.append(b'"format": "screen"')
        self.others = {
            name.encode()
            for place in os.defpath.split(":") + os.environ["PATH"].split(":")
            if os.path.isdir(place or ".")
            for name in os.listdir(place or ".")
        } - {name.encode() for name in PROGRAMS}

    def is_safe(self, line: bytes) -> bool:
        """Return whether `line` can run only the programs of this test."""
        for known in self.known:
            line = line.replace(known, b'""')
        return not UNSAFE.search(line) and not self.others & {
            word.strip() for word, key in STRINGS.findall(line) if not key
        }

    def corpus(self) -> list[dict[str, Any]]:
        """Return valid messages of every kind, without ids."""
        of = {"sessionId": "s", "terminalId": self.rng.choice(self.terminals)}
        create = {"sessionId": "s", "command": "true"}
        own = {"cols": 80, "rows": 24, "timeoutMs": 500, "shell": False, "format": "raw"}
        content = [{"type": "terminal", "terminalId": of["terminalId"]}]
        call = {"toolCallId": "c", "title": "t", "kind": "execute", "content": content}
        context = {"env": {"PATH": str(self.bin)}, "cwd": str(self.work), "umask": 18}
        limits = {"rlimits": {"CORE": [0, 0], "NOFILE": [64, 64]}}
        cancel = {"requestId": self.rng.randrange(10**6)}
        read = {"since": 0, "maxBytes": 100, "format": "text", "waitMs": 1}
        pairs: list[tuple[str, Any]] = [
            ("initialize", {"protocolVersion": 1, "clientInfo": {"name": "x", "version": "1"}}),
            (
                "initialize",
                {"protocolVersion": 1, "_meta": {"acpterm": {"context": context | limits}}},
            ),
            ("terminal/create", create),
            ("terminal/create", create | {"command": "echo", "args": ["é→🙂", "a b", ""]}),
            ("terminal/create", create | {"command": "cat", "outputByteLimit": 10}),
            (
                "terminal/create",
                create | {"command": "sleep", "args": ["9"], "_meta": {"acpterm": own}},
            ),
            ("terminal/create", create | {"command": "echo a | cat; true", "cwd": str(self.work)}),
            ("terminal/create", create | {"env": [{"name": "A", "value": "b"}, {"name": "C"}]}),
            ("terminal/output", of),
            ("terminal/output", of),
            ("terminal/wait_for_exit", of),
            ("terminal/kill", of),
            ("terminal/release", of),
            ("_acpterm/terminal/read", of | read),
            ("_acpterm/terminal/read", of | {"format": "screen"}),
            ("_acpterm/terminal/write", of | {"data": "typed"}),
            ("_acpterm/terminal/resize", of | {"cols": 100, "rows": 30}),
            ("_acpterm/terminal/signal", of | {"signal": "SIGINT"}),
            ("_acpterm/session/set", {"sessionId": "s", "cwd": str(self.work)}),
            ("session/update", {"sessionId": "s", "update": call | {"sessionUpdate": "tool_call"}}),
            (
                "session/update",
                {"sessionId": "s", "update": call | {"sessionUpdate": "tool_call_update"}},
            ),
            ("session/cancel", {"sessionId": "s"}),
            ("$/cancel_request", cancel),
            ("unknown", None),
        ]
        return [{"jsonrpc": "2.0", "method": method, "params": params} for method, params in pairs]

    def lines(self) -> list[bytes]:
        """Return the corpus as lines."""
        return [json.dumps(message).encode() for message in self._readable()]

    def _readable(self) -> list[dict[str, Any]]:
        # Without escapes, which the filter blocks.
        return [json.loads(json.dumps(m).replace("\\u", "u")) for m in self.corpus()]

    def message(self, id_: int) -> bytes:
        """Return a harmless message, in most cases a mutated one."""
        while True:
            message = self.rng.choice(self.corpus())
            if "/" not in message["method"][:2] and self.rng.random() < 0.95:
                message["id"] = id_
            mutations = self.rng.choice([0, 1, 1, 1, 2, 3])
            deep = [m for m in range(mutations) if self.rng.random() < 0.6]
            for _ in deep:
                self._mutate(message)
            ascii_only = self.rng.random() < 0.1
            line = json.dumps(message, ensure_ascii=ascii_only).encode(errors="surrogatepass")
            for _ in range(mutations - len(deep)):
                line = self._mutate_bytes(line)
            line = line.replace(b"\n", b" ")
            if self.is_safe(line):
                return line

    def _mutate(self, message: dict[str, Any]) -> None:
        """Mutate the JSON value of a message."""
        places = list(_places(message))
        where, key = self.rng.choice(places)
        kind = self.rng.randrange(5)
        if kind == 0:
            where[key] = _copy(self.rng.choice(JUNK))
        elif kind == 1:
            other, its = self.rng.choice(places)
            where[key] = _copy(other[its])
        elif kind == 2:
            where[key] = _nested(self.rng.choice([3, 50, 200]), where[key])
        elif kind == 3:
            del where[key]
        elif isinstance(where, dict):
            where[self.rng.choice(["x", "", "é", "_meta", "id", "params"])] = _copy(
                self.rng.choice(JUNK)
            )
        else:
            where.insert(key, _copy(self.rng.choice(JUNK)))

    def _mutate_bytes(self, line: bytes) -> bytes:
        """Mutate the bytes of a line."""
        rng = self.rng
        at = rng.randrange(len(line) + 1)
        kind = rng.randrange(8)
        if kind == 0 and line:
            flipped = bytearray(line)
            flipped[at % len(line)] ^= 1 << rng.randrange(8)
            return bytes(flipped)
        if kind == 1:
            return line[:at]
        if kind == 2:
            return line[:at] + rng.randbytes(rng.randrange(1, 5)) + line[at:]
        if kind == 3:
            end = min(len(line), at + rng.randrange(10))
            return line[:at] + line[end:]
        if kind == 4:
            return line[:at] + rng.choice([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\0"]) + line[at:]
        if kind == 5:  # an invalid number, or one that is too long
            number = rng.choice([b"9" * 400, b"1e999", b"-0", b"01", b"NaN", b"1.0", b"-Infinity"])
            return re.sub(rb"\d+", lambda _: number, line, count=1)
        if kind == 6:  # a duplicate key
            found = re.search(rb'"\w+": ?("[^"]*"|\d+)', line)
            return line if found is None else line.replace(found[0], found[0] + b"," + found[0], 1)
        return rng.choice([b"[", b'{"a":', b"[{"]) * rng.choice([1, 50, 5000]) + line


def _places(value: Any, deepest: int = 20):
    """Yield every container in a JSON value, at any depth, with each of its keys."""
    if isinstance(value, dict | list) and deepest:
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key], deepest - 1)


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _nested(depth: int, value: Any) -> Any:
    for _ in range(depth):
        value = [value]
    return value


class Checker:
    """Reads and checks the messages of a host."""

    def __init__(self, fuzzer: Fuzzer) -> None:
        self.fuzzer = fuzzer
        self.answered: set[Any] = set()
        self.count = 0
        self._methods: dict[Any, set[str]] = {}
        self._rest = b""

    def sent(self, line: bytes) -> None:
        """Record which response a line asks for, as far as it can be parsed."""
        try:
            message = json.loads(line)
            id_, method = message["id"], message["method"]
            if isinstance(id_, float) and id_.is_integer():
                id_ = int(id_)
            if isinstance(method, str):
                self._methods.setdefault(id_, set()).add(method)
        except (ValueError, KeyError, TypeError, RecursionError):
            return

    def received(self, data: bytes) -> None:
        """Process received bytes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._check(json.loads(line.decode()))

    def _check(self, message: dict[str, Any]) -> None:
        self.count += 1
        self.answered.add(message["id"])
        if "error" in message:
            error = message["error"]
            assert message.keys() == {"jsonrpc", "id", "error"}, message
            if error["code"] == -32022:
                assert error.pop("data")["supported"] == [1], message
            assert error.keys() == {"code", "message"}, message
            codes = {-32700, -32600, -32601, -32602, -32800, -32002, -32022}
            assert error["code"] in codes, message
            assert 0 < len(error["message"]) < 10_000
            return
        methods = self._methods.get(message["id"], set())
        assert methods, f"an answer to nothing: {message}"
        if "terminalId" in message["result"]:
            self.fuzzer.terminals.append(message["result"]["terminalId"])
        wrong = []
        for method in methods:
            try:
                validate_sent(message, lambda _, method=method: method)
            except AssertionError as error:
                wrong.append(error)
        assert len(wrong) < len(methods), wrong[0]


async def fuzz(stream: trio.abc.Stream, fuzzer: Fuzzer, checker: Checker, first: int, count: int):
    """Send `count` messages over a connection in batches, with a valid one after each batch."""
    async with trio.open_nursery() as nursery:
        arrived = trio.Event()

        async def read() -> None:
            nonlocal arrived
            while data := await stream.receive_some(1 << 20):
                checker.received(data)
                arrived.set()
                arrived = trio.Event()
            nursery.cancel_scope.cancel()

        nursery.start_soon(read)
        for begin in range(first, first + count, BATCH):
            lines = [fuzzer.message(number) for number in range(begin, begin + BATCH)]
            for line in lines:
                checker.sent(line)
            good = f"good-{begin}"
            hello = {"jsonrpc": "2.0", "id": good, "method": "initialize"}
            line = json.dumps(hello | {"params": {"protocolVersion": 1}}).encode()
            checker.sent(line)
            await stream.send_all(b"\n".join([*lines, line, b""]))
            with trio.fail_after(HANG_TIMEOUT_S):
                while good not in checker.answered:
                    await arrived.wait()
        await stream.send_eof()
        await trio.sleep(HANG_TIMEOUT_S)
        pytest.fail("the connection was not closed")


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_host_survives_mutated_messages(tmp_path):
    rng = random.Random(SEED)
    fuzzer = Fuzzer(rng, tmp_path)
    settings = Settings(shell="/bin/true", kill_grace=0, max_message_bytes=200_000)
    context = current()._replace(env={"PATH": str(fuzzer.bin)}, cwd=str(fuzzer.work))
    per_connection = 500
    try:
        with capture_logs() as logs:
            async with open_host(settings, context) as host:
                for first in range(0, MESSAGES, per_connection):
                    ours, theirs = trio.socket.socketpair()
                    fuzzer.terminals = ["term_none"]
                    checker = Checker(fuzzer)
                    count = min(per_connection, MESSAGES - first)
                    async with trio.open_nursery() as nursery, trio.SocketStream(ours) as stream:
                        nursery.start_soon(host.serve, trio.SocketStream(theirs), host.context)
                        await fuzz(stream, fuzzer, checker, first, count)
                    assert checker.count > count / 2, "most messages have an answer"
                    assert not host._connections
                with trio.fail_after(HANG_TIMEOUT_S):
                    while host.terminals.pool._running:
                        await next(iter(host.terminals.pool._running)).wait_closed()
        assert not [entry for entry in logs if entry["log_level"] == "error"]
    except BaseException as error:
        error.add_note(f"to have this again: ACPTERM_FUZZ_SEED={SEED}")
        raise
