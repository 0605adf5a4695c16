"""PTYs without a keeper, for tests of what uses one side."""

import os
import termios

from acpterm.pty import linux


def open_pair(cols: int, rows: int) -> tuple[int, int]:
    """Open a PTY whose window has that size: the descriptors of master and slave."""
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (rows, cols))
    linux.set_utf8_input(slave)
    return master, slave
