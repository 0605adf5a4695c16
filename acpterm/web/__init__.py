"""The HTTP server of a daemon: the page, JSON-RPC over WebSocket, `/mcp`, a PTY pool (`pool`).

Needs the extra `web`. Without it, only `service` and the modules that `service` imports at its top
can be imported.

- `service`: when the server listens, with which certificate; `endpoint`: the server's address, and
  the hosts and origins that it accepts;
- `server`: accepts connections; `http_connection`: one connection; `request_body`: the body of a
  request;
- `app`: the paths; `guard`: checks of each request; `access`, `access_file`: links, logins, shares
  and tokens;
- `pages`: the files of the page; `login`: `/login`, `/logout`, `/access`; `mcp_handler`,
  `mcp_sessions`: `/mcp`; `json_rpc_websockets`: `/user` and `/acp`; `pool`: `/ws` and `/pty/spawn`;
- `websocket_stream`: a WebSocket as a stream of lines, which ends with its login.
"""
