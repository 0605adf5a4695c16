"""Stubs of a daemon's first process and of its workers.

`launch CONTROL` starts a worker and becomes the keeper. `worker CONTROL` passes its connection to
the keeper to the test that listens at CONTROL, and executes the command of that test: `exit N`.
"""

import os
import socket
import sys

HERE = os.path.abspath(__file__)
KEEPER = os.path.join(HERE.rsplit("/", 3)[0], "acpterm", "keeper", "__main__.py")
WITHOUT_PIDFDS = (
    f"import os, runpy; del os.pidfd_open; runpy.run_path({KEEPER!r}, None, '__main__')"
)
PYTHON = [sys.executable, "-I", "-S"]


def launch(control, mode):
    keeper_end, worker_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker = os.fork()
    if worker == 0:
        keeper_end.close()
        serve_test(control, worker_end)
    worker_end.close()
    keeper_end.set_inheritable(True)
    command = [*PYTHON, HERE, "worker", control, mode]
    arguments = ["supervise", str(keeper_end.fileno()), str(worker), "--", *command]
    keeper = ["-c", WITHOUT_PIDFDS] if mode == "no pidfds" else [KEEPER]
    os.execv(PYTHON[0], [*PYTHON, *keeper, *arguments])


def serve_test(control, keeper):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as test:
        test.connect(control)
        socket.send_fds(test, [str(os.getpid()).encode()], [keeper.fileno()])
        keeper.close()
        while command := test.recv(100):
            if command.startswith(b"exit "):
                os._exit(int(command[5:]))
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "launch":
        launch(*sys.argv[2:])
    elif sys.argv[3] == "fail":
        sys.exit(7)
    else:
        fd = int(os.environ["ACPTERM_KEEPER_FD"])
        serve_test(sys.argv[2], socket.socket(fileno=fd))
