"""The keeper's terminals: programs on PTYs, from their start to their exit, and their output."""
