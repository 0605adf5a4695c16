"""The session leader of a plain terminal: like a person's shell, it outlives its commands.

`session_leader.py MARK KEEP COMMAND…`: descriptors 0, 1 and 2 are a PTY's slave. Runs the command
in the foreground, prints MARK and the wait status when it has ended, and stays until the
descriptor KEEP ends.
"""

import _signal as signal  # type: ignore[import-not-found]  # `signal` takes half of the start
import fcntl
import os
import sys
import termios


def main() -> None:
    mark, keep, *command = sys.argv[1:]
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # As an interactive bash does.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    pid = os.fork()
    if pid == 0:
        _run(command, int(keep))
    _, status = os.waitpid(pid, 0)
    os.write(1, f"{mark}{status}\n".encode())
    os.read(int(keep), 1)


def _run(command: list[str], keep: int) -> None:
    try:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        os.close(keep)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


if __name__ == "__main__":
    main()
