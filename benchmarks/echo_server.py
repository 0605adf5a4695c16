"""A bare WebSocket server, as a baseline: it sends each binary message back. See `figures.web`.

`python -m benchmarks.echo_server DIRECTORY` serves a page on a port of 127.0.0.1, and prints the
port. DIRECTORY has the files of xterm.js. The page's function `begin(cols, rows, text)` shows a
terminal. At each key, the page sends `text` through the WebSocket, and the terminal displays the
bytes that come back.
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Request

_CHUNK_BYTES = 256 * 1024
_PIECE_BYTES = 64 * 1024
_TYPES = {".css": "text/css", ".mjs": "text/javascript"}

_PAGE = f"""<!doctype html>
<link rel="stylesheet" href="/xterm.css">
<div id="terminal"></div>
<script type="module">
  import {{ Terminal }} from "/xterm.mjs";
  const socket = new WebSocket(`ws://${{location.host}}/`);
  socket.binaryType = "arraybuffer";
  await new Promise(resolve => {{ socket.onopen = resolve; }});
  window.begin = (cols, rows, text) => {{
    const terminal = new Terminal({{ cols, rows }});
    const bytes = new TextEncoder().encode(text);
    terminal.open(document.getElementById("terminal"));
    terminal.focus();
    socket.onmessage = message => terminal.write(new Uint8Array(message.data));
    terminal.onData(() => {{
      for (let at = 0; at < bytes.length; at += {_PIECE_BYTES})
        socket.send(bytes.subarray(at, at + {_PIECE_BYTES}));
    }});
  }};
</script>
"""


class Handler(BaseHTTPRequestHandler):
    """Serves the page, the files of the directory, and WebSockets."""

    directory: Path

    def do_GET(self) -> None:
        if self.headers.get("Upgrade"):
            self._echo()
        elif self.path == "/":
            self._send(_PAGE.encode(), "text/html")
        else:
            file = self.directory / self.path.rpartition("/")[2]
            if file.is_file():
                self._send(file.read_bytes(), _TYPES[file.suffix])
            else:
                self.send_error(404)

    def _send(self, body: bytes, type_: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", type_)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _echo(self) -> None:
        connection = WSConnection(ConnectionType.SERVER)
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        connection.initiate_upgrade_connection(headers, self.path)
        client, data = self.connection, b""
        while True:
            for event in connection.events():
                match event:
                    case Request():
                        client.sendall(connection.send(AcceptConnection()))
                    case BytesMessage(data=piece):
                        client.sendall(connection.send(BytesMessage(data=piece)))
                    case CloseConnection():
                        client.sendall(connection.send(event.response()))
                        return
            data = client.recv(_CHUNK_BYTES)
            if not data:
                return
            connection.receive_data(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    Handler.directory = Path(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
