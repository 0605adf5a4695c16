"""One program on one PTY, as the worker uses it: the master, signals and the process tree."""
