"""A host that is sent mutated messages stays well: it answers the next good one, and validly.

Nothing that is sent can do harm, whatever the mutations make of it:

- shell text goes to `/bin/true`, which is the host's shell here;
- programs are looked for in a folder that holds `true`, `echo`, `cat` and `sleep`, which is all of
  PATH; paths, absolute or upwards, are not sent at all, except two that are known;
- no string is sent that is the name of another program of this machine, for an environment in which
  the PATH was mutated; and no escape, in which any of that might be hidden, except surrogates.

`ACPTERM_FUZZ_MESSAGES` is how many messages are sent, `ACPTERM_FUZZ_SEED` where the randomness
begins; a failure names the seed.
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
from acpterm.host.host import open_host
from acpterm.host.launch.exec_context import current
from tests.acp.validate import validate_sent
from tests.support.depth import THOROUGH

MESSAGES = int(os.environ.get("ACPTERM_FUZZ_MESSAGES", "20000" if THOROUGH else "5000"))
SEED = int(os.environ.get("ACPTERM_FUZZ_SEED", str(random.SystemRandom().randrange(2**32))))
BATCH = 50
# A batch starts dozens of programs: on a busy machine that takes many seconds.
HANG_TIMEOUT_S = 90
PROGRAMS = ("true", "echo", "cat", "sleep")

# What no sent message may hold: something that begins a path, goes up, or is an escape.
UNSAFE = re.compile(rb'["\s:=]/|\.\.|//|\\(?![uU]?[dD][89a-fA-F][0-9a-fA-F]{2})')
# A string, and what makes a key of it.
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


def test_the_filter_keeps_back_what_could_do_harm(tmp_path):
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
    """Makes messages: good ones, and mutations of them."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng = rng
        self.bin = folder / "bin"
        self.work = folder / "work"
        self.bin.mkdir()
        self.work.mkdir()
        for name in PROGRAMS:
            (self.bin / name).symlink_to(shutil.which(name))
        self.terminals: list[str] = ["term_none"]
        self.known = [f'"{path}"'.encode() for path in (self.bin, self.work)]
        self.others = {
            name.encode()
            for place in os.defpath.split(":") + os.environ["PATH"].split(":")
            if os.path.isdir(place or ".")
            for name in os.listdir(place or ".")
        } - {name.encode() for name in PROGRAMS}

    def is_safe(self, line: bytes) -> bool:
        """Whether nothing in `line` can run a program that is not one of ours."""
        for known in self.known:
            line = line.replace(known, b'""')
        return not UNSAFE.search(line) and not self.others & {
            word.strip() for word, key in STRINGS.findall(line) if not key
        }

    def corpus(self) -> list[dict[str, Any]]:
        """Good messages, of every kind there is, without ids."""
        of = {"sessionId": "s", "terminalId": self.rng.choice(self.terminals)}
        create = {"sessionId": "s", "command": "true"}
        own = {"cols": 80, "rows": 24, "timeoutMs": 500, "shell": False, "format": "raw"}
        content = [{"type": "terminal", "terminalId": of["terminalId"]}]
        call = {"toolCallId": "c", "title": "t", "kind": "execute", "content": content}
        asker = {"env": {"PATH": str(self.bin)}, "cwd": str(self.work), "umask": 18}
        limits = {"rlimits": {"CORE": [0, 0], "NOFILE": [64, 64]}}
        cancel = {"requestId": self.rng.randrange(10**6)}
        read = {"since": 0, "maxBytes": 100, "format": "text", "waitMs": 1}
        pairs: list[tuple[str, Any]] = [
            ("initialize", {"protocolVersion": 1, "clientInfo": {"name": "x", "version": "1"}}),
            (
                "initialize",
                {"protocolVersion": 1, "_meta": {"acpterm": {"context": asker | limits}}},
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
        """The corpus as lines."""
        return [json.dumps(message).encode() for message in self._readable()]

    def _readable(self) -> list[dict[str, Any]]:
        # Without escapes, which the filter takes for harmful.
        return [json.loads(json.dumps(m).replace("\\u", "u")) for m in self.corpus()]

    def message(self, id_: int) -> bytes:
        """One message, mutated more often than not, that can do no harm."""
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
        """Change something in a message that is JSON before and after."""
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
        """Change bytes of a line, whatever comes of it."""
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
        if kind == 5:  # a number that is none, or that is too long
            number = rng.choice([b"9" * 400, b"1e999", b"-0", b"01", b"NaN", b"1.0", b"-Infinity"])
            return re.sub(rb"\d+", lambda _: number, line, count=1)
        if kind == 6:  # a key twice
            found = re.search(rb'"\w+": ?("[^"]*"|\d+)', line)
            return line if found is None else line.replace(found[0], found[0] + b"," + found[0], 1)
        return rng.choice([b"[", b'{"a":', b"[{"]) * rng.choice([1, 50, 5000]) + line


def _places(value: Any, deepest: int = 20):
    """Yield every container in a JSON value, down to the deepest, with each of its keys."""
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
    """Reads what a host answers, and checks each message."""

    def __init__(self, fuzzer: Fuzzer) -> None:
        self.fuzzer = fuzzer
        self.answered: set[Any] = set()
        self.count = 0
        self._methods: dict[Any, set[str]] = {}
        self._rest = b""

    def sent(self, line: bytes) -> None:
        """Note what a line asks for, as far as it can be read."""
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
        """Take what has come."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._check(json.loads(line.decode()))

    def _check(self, message: dict[str, Any]) -> None:
        self.count += 1
        self.answered.add(message["id"])
        if "error" in message:
            error = message["error"]
            assert message.keys() == {"jsonrpc", "id", "error"}, message
            assert error.keys() == {"code", "message"}, message
            assert error["code"] in {-32700, -32600, -32601, -32602, -32800, -32002}, message
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
    """Send `count` messages over a connection, in batches, a good one after each."""
    async with trio.open_nursery() as nursery:
        news = trio.Event()

        async def read() -> None:
            nonlocal news
            while data := await stream.receive_some(1 << 20):
                checker.received(data)
                news.set()
                news = trio.Event()
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
                    await news.wait()
        await stream.send_eof()
        await trio.sleep(HANG_TIMEOUT_S)
        pytest.fail("the connection was not closed")


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_host_outlives_every_message(tmp_path):
    rng = random.Random(SEED)
    fuzzer = Fuzzer(rng, tmp_path)
    settings = Settings(shell="/bin/true", kill_grace=0, max_message_bytes=200_000)
    asker = current()._replace(env={"PATH": str(fuzzer.bin)}, cwd=str(fuzzer.work))
    per_connection = 500
    try:
        with capture_logs() as logs:
            async with open_host(settings, asker) as host:
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
                    while host.pool._running:
                        await next(iter(host.pool._running)).wait_closed()
        assert not [entry for entry in logs if entry["log_level"] == "error"]
    except BaseException as error:
        error.add_note(f"to have this again: ACPTERM_FUZZ_SEED={SEED}")
        raise
