"""Limits of programs in a host: refused, reported, and stored for the next worker."""

import pytest
import trio

from acpterm.host.input_monitor import input_wait
from acpterm.host.state.records import TerminalRecord
from acpterm.host.terminal_info import terminal_info
from acpterm.jsonrpc import INTERNAL_ERROR, RpcError
from tests.support.depth import DEADLINE_S
from tests.support.hosts import host_here
from tests.support.limited import start


async def test_limit_that_cannot_be_enforced_refuses_the_terminal():
    async with host_here(tracking="subreaper") as host:
        with pytest.raises(RpcError) as raised:
            await start(host, "exit 0", memory=1 << 20)
        assert raised.value.code == INTERNAL_ERROR
        message = raised.value.message
        assert message.startswith(
            "no terminal is created: the limit memory = 1048576 cannot be enforced here: it needs"
        )
        assert "unenforceable_limits = 'warn'" in message
        assert not len(host.terminals.registry)


async def test_limit_that_cannot_be_enforced_is_in_the_description_if_it_need_not_be():
    async with host_here(tracking="subreaper") as host:
        entry = await start(host, "exit 0", memory=1 << 20, open_files=64, strict=False)
        (sentence,) = terminal_info(entry, waiting=input_wait(entry)).unenforced_limits
        assert sentence.startswith("the limit memory = 1048576 cannot be enforced here: it needs")
        stored = TerminalRecord.decode(entry.record.encode()).limits
        assert stored.unenforced == [sentence]
        assert stored.resources == {"memory": 1 << 20, "open_files": 64}


async def test_exit_status_names_the_limit_that_ended_the_program(host, tmp_path):
    line = f"exec dd if=/dev/zero of={tmp_path}/file bs=1024 count=64"
    entry = await start(host, line, file_size=16384)
    with trio.fail_after(DEADLINE_S):
        await entry.terminal.wait_exited()
    info = terminal_info(entry, waiting=input_wait(entry)).exit_status
    assert (info.signal, info.ended_by) == ("SIGXFSZ", "limit")
    assert (info.limit, info.limit_value) == ("file_size", 16384)
