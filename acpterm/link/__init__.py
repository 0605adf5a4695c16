"""The client's end of a connection: find or start a daemon, send requests, recover from a loss.

`session` is the protocol without I/O: requests, responses, what is sent again. Two drivers run it:
`endpoint` in async code (anyio, so on trio and asyncio), `blocking` on a plain socket, without the
import of either. `daemon` finds or starts the daemon, and `handshake` opens a connection to it.
"""
