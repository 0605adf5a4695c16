"""One child on one PTY, as the worker sees it: resize, signal, and its whole tree of processes."""
