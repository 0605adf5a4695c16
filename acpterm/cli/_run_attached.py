"""`acpterm run` without -d: attach to the new terminal, or only print its output."""

import os
from contextlib import nullcontext, suppress
from typing import NoReturn

import trio

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import TerminalInfo, UserCreateRequest
from acpterm.acp.user_streams import AttachResponse
from acpterm.cli._async import call_async
from acpterm.cli._daemon import ChosenDaemon
from acpterm.cli._options import fail
from acpterm.cli.attach import report
from acpterm.commands.attach.attach import attach
from acpterm.commands.attach.detach_keys import DetachFilter
from acpterm.commands.attach.pipe import ExitResult, follow, is_passed_on, pass_stdin
from acpterm.commands.attach.tty import Tty
from acpterm.commands.client import UserClient
from acpterm.commands.format import (
    background_notice,
    background_number,
    end_notice,
    exit_code,
    title,
)
from acpterm.config import user_socket
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon import DaemonError
from acpterm.runtime.descriptors import named_pipe


def run_attached(
    daemon: ChosenDaemon,
    request: UserCreateRequest,
    *,
    remove: bool,
    interactive: bool,
    no_stdin: bool,
    raw: bool,
) -> None:
    """Create the terminal, and attach to it; exit with its program's status unless that runs on."""
    settings = daemon.settings()
    both = Tty() if Tty.is_there() else None
    window = None if no_stdin else both or Tty.beside_data()
    detach_keys = DetachFilter(settings.detach_key) if window else None
    request.hold = window is None
    passes_stdin = not (both or no_stdin) and is_passed_on(even_terminal=interactive)
    runtime_dir = os.path.dirname(user_socket(settings))

    async def start(client: UserClient) -> tuple[TerminalInfo, AttachResponse | ExitResult | None]:
        with named_pipe(runtime_dir) if passes_stdin else nullcontext() as pipe:
            request.stdin = pipe
            info = await client.call("terminal/create", request, TerminalInfo)
            result: AttachResponse | ExitResult | None
            if window and detach_keys:
                async with trio.open_nursery() as nursery:
                    if pipe is not None:
                        nursery.start_soon(pass_stdin, pipe)
                    result = await attach(client, window, info, detach_keys, complete=True)
                    nursery.cancel_scope.cancel()
            else:
                result = await follow(client, info, pipe=pipe, raw=raw or os.isatty(1))
            if result is not None:
                # The terminal was removed, or the daemon has ended.
                with suppress(RpcError, DaemonError):
                    info = await client.terminal_request("get", info.terminal_id, TerminalInfo)
                    if remove and not background_number(info):
                        await client.terminal_request("release", info.terminal_id, Empty)
            return info, result

    info, result = call_async(daemon, start, start=True)
    if result is None:
        report(f"[left running: acpterm attach {title(info)} comes back to it]")
    else:
        _exit(info, result)


def _exit(info: TerminalInfo, result: AttachResponse | ExitResult) -> NoReturn:
    if isinstance(result, ExitResult) and result.signal is not None:
        raise SystemExit(128 + result.signal)
    status = result.status if isinstance(result, ExitResult) else result.exit_status
    if status is None:
        fail(f"terminal {title(info)} was removed")
    for sentence in (end_notice(info, status), background_notice(info)):
        if sentence:
            report(f"[{sentence}]")
    raise SystemExit(exit_code(status))
