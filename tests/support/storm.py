"""Use up the processes that this user may have, within the bounds of `bounded`; for some seconds.

`python -m tests.support.storm PROCESSES SECONDS`: prints `full` once no process can be made.
"""

import os
import sys
import time

from tests.support.bounded import check


def main() -> None:
    processes, seconds = int(sys.argv[1]), float(sys.argv[2])
    check(processes)
    end = time.monotonic() + seconds
    said = False
    while time.monotonic() < end:
        try:
            if os.fork() == 0:
                said = True  # the first says it
        except BlockingIOError:
            if not said:
                os.write(1, b"full\n")
                said = True
            time.sleep(0.002)


if __name__ == "__main__":
    main()
