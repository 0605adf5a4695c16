"""The keeper's terminals: children on PTYs, from spawn to reaping, and their output."""
