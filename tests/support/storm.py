"""Creates as many processes as this user may have, within the bounds of `bounded`.

`python -m tests.support.storm PROCESSES SECONDS` does so for SECONDS, and prints `full` once no
process can be created. PROCESSES is the bound that is checked first.
"""

import os
import sys
import time

from tests.support.bounded import check


def main() -> None:
    processes, seconds = int(sys.argv[1]), float(sys.argv[2])
    check(processes)
    end = time.monotonic() + seconds
    printed = False
    while time.monotonic() < end:
        try:
            if os.fork() == 0:
                printed = True  # the first process prints it
        except BlockingIOError:
            if not printed:
                os.write(1, b"full\n")
                printed = True
            time.sleep(0.002)


if __name__ == "__main__":
    main()
