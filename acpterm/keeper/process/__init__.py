"""The keeper as a process: its loop, its connection to the worker, and the worker's life."""
