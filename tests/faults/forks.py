"""A program that starts as many sleeping processes as it can: `forks.py COUNT`.

It starts at most COUNT, whatever other limit applies; all exit after `LIFETIME_S`. It prints how
many it could start, and waits.
"""

import os
import signal
import sys
import time

LIFETIME_S = 40


def main():
    signal.alarm(LIFETIME_S)
    started = 0
    for _ in range(int(sys.argv[1])):
        try:
            pid = os.fork()
        except OSError:
            break
        if not pid:
            signal.alarm(LIFETIME_S)
            time.sleep(LIFETIME_S)
            os._exit(0)
        started += 1
    os.write(1, b"started %d\n" % started)
    time.sleep(LIFETIME_S)


main()
