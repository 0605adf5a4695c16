"""What is said first to a host: who asks, and whose environment, folder, umask and limits count."""

from typing import Any, Final

import trio

from acpterm import __version__
from acpterm.acp import PROTOCOL_VERSION, Implementation, InitializeMeta
from acpterm.acp.extensions import OWN
from acpterm.client.daemon import DaemonError
from acpterm.client.endpoint import Endpoint
from acpterm.host.asker import Asker, to_send
from acpterm.jsonrpc import RpcError, can_be_said

# Seconds that a host has to answer.
_PATIENCE: Final = 10.0


async def introduce(host: Endpoint, name: str, asker: Asker) -> None:
    """Tell `host` who asks. Raises `DaemonError` if it cannot be used, with the reason."""
    params: dict[str, Any] = {
        "protocolVersion": PROTOCOL_VERSION,
        "clientInfo": Implementation(
            name=name if can_be_said(name) else ascii(name), version=__version__
        ),
        "_meta": {OWN: InitializeMeta(asker=to_send(asker))},
    }
    why = f"it does not answer within {_PATIENCE:g} s"
    with trio.move_on_after(_PATIENCE):
        try:
            await host.request("initialize", params)
        except RpcError as error:
            why = error.message
        else:
            return
    raise DaemonError(f"{host.whom} cannot be used: {why}")
