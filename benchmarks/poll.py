"""Polls a quiet terminal every 5 ms until stdin closes; then prints all response times in ms.

The argument is the path of the server's socket. Prints `ready` when the terminal is created.
"""

import json
import select
import sys

from benchmarks.client import Client, polls


def main(path: str) -> None:
    client = Client(path)
    quiet = client.create("/bin/cat")
    taken: list[float] = []
    polls(client, quiet, 50, 0.001)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        taken += polls(client, quiet, 1, 0.005)
    print(json.dumps(taken))


main(sys.argv[1])
