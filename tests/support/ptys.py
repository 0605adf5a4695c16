"""PTYs without a keeper."""

import os
import termios

from acpterm.pty import linux


def open_pair(cols: int, rows: int) -> tuple[int, int]:
    """Open a PTY of this size; return the descriptors of its master and slave."""
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (rows, cols))
    linux.set_utf8_input(slave)
    return master, slave
