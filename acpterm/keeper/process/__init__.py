"""The keeper process: its event loop, its connection to the worker, and the worker's lifecycle."""
