"""The keeper process: its event loop, its connection to the worker, and the worker's lifecycle.

- `main`: the process's startup, and the embedded keeper, which is the child of its worker;
- `supervisor`: a daemon's keeper, which starts, restarts and replaces the worker;
- `keeper`: handles the worker's messages, and reports the exit of programs;
- `worker`: one worker process; `respawn`: when to start a new worker after one has died;
- `link`: the keeper's end of its socket to a worker;
- `loop`: the event loop;
- `store`: entries, which are values and descriptors that a worker stores for the next one;
- `notify`: messages and descriptors for the service manager; `inherited_fds`: descriptors from it;
- `diagnostics`: the keeper's log, and the lock file.
"""
