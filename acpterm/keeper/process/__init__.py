"""The keeper process: its loop, its connection to the worker, and the worker's lifecycle."""
