"""A program that writes numbered lines: `writer.py DIRECTORY NAME LINES_PER_S STATUS`.

It runs until DIRECTORY/stop or DIRECTORY/NAME.stop exists, then writes how many lines it has
written to NAME.count and exits with STATUS. Its pid and start are in NAME.pid, appended, so that
a second execution shows. LINES_PER_S 0 is full speed. It ends by itself after `LIFETIME_S`, and
when its terminal is gone.
"""

import os
import sys
import time

LIFETIME_S = 100
DIGITS = 14
BLOCK_LINES = 2048
PACE_S = 0.02


def yield_to_tests():
    """Yield the CPUs to the checking processes: lower the priority of this session's autogroup."""
    try:
        with open("/proc/self/autogroup", "w") as file:
            file.write("10")
    except OSError:  # there is none
        os.nice(10)


def main():
    directory, name, pace, status = sys.argv[1:]
    if pace == "0":
        yield_to_tests()
    path = os.path.join(directory, name)
    with open(path + ".pid", "a") as file:
        file.write(f"{os.getpid()}\n")
    stops = [os.path.join(directory, "stop"), path + ".stop"]
    end = time.monotonic() + LIFETIME_S
    started_at = time.monotonic()
    pace = int(pace)
    written = 0
    while time.monotonic() < end and not any(map(os.path.exists, stops)):
        if pace:
            time.sleep(PACE_S)
            until = int((time.monotonic() - started_at) * pace)
        else:
            until = written + BLOCK_LINES
        write("".join([f"{number:0{DIGITS}d}\n" for number in range(written, until)]).encode())
        written = max(written, until)
    with open(path + ".tmp", "w") as file:
        file.write(str(written))
    os.rename(path + ".tmp", path + ".count")
    os._exit(int(status))


def write(data):
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(1, view) :]
        except OSError:  # EIO: the terminal is gone
            os._exit(99)


main()
