"""A baseline: responds to each byte on a socket with a file's text, encoded by `msgspec`.

The arguments are the descriptor of the socket and the path of the file. A response is one line,
like that of `terminal/output`.
"""

import socket
import sys

import msgspec


class Result(msgspec.Struct):
    output: str
    truncated: bool


class Response(msgspec.Struct):
    jsonrpc: str
    id: int
    result: Result


def main(fd: int, file: str) -> None:
    with open(file) as opened:
        text = opened.read()
    encode = msgspec.json.Encoder().encode
    with socket.socket(fileno=fd) as sock:
        while sock.recv(1):
            sock.sendall(encode(Response("2.0", 1, Result(text, True))) + b"\n")


main(int(sys.argv[1]), sys.argv[2])
