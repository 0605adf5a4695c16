"""Execute a program with stored descriptors, as systemd does: `NAMES FD… -- ARGV…`.

NAMES are separated by colons. The descriptors become 3, 4, … of the program.
"""

import fcntl
import os
import sys

FIRST = 3


def main():
    end = sys.argv.index("--")
    names, fds, argv = sys.argv[1], list(map(int, sys.argv[2:end])), sys.argv[end + 1 :]
    # Move the descriptors out of the target range first, so that none overwrites another.
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, FIRST + len(fds) + 100) for fd in fds]
    for number, fd in enumerate(moved):
        os.dup2(fd, FIRST + number)
        os.close(fd)
    os.closerange(FIRST + len(fds), FIRST + 2 * len(fds) + 200)
    os.environ["LISTEN_PID"] = str(os.getpid())
    os.environ["LISTEN_FDS"] = str(len(fds))
    os.environ["LISTEN_FDNAMES"] = names
    os.execv(argv[0], argv)


main()
