"""The keeper: a small process that owns programs, PTYs and output, and outlives the worker.

The keeper process imports only the standard library (and ptyprocess on systems other than Linux):

- `__main__`: the keeper's entry point;
- `process/`: its event loop, its connection to the worker, and the worker's lifecycle;
- `programs/`: its terminals: starting programs, reading their PTYs, reaping them.

Both the keeper and the worker use:

- `protocol`: their messages, and the socket between them;
- `ring_file`: the layout of the ring file, which holds a terminal's output;
- `encodings`: the encodings of output, and of input.

Only the worker uses (on trio):

- `startup`: starts a keeper, becomes one, or connects to the keeper that started this process;
- `client`: a worker's connection to its keeper, with a method or a handler for each message;
- `keeper_socket`: the worker's end of the socket: sends, queues and receives messages;
- `wake_ups`: events without content, for new output and for free space in a ring;
- `pending_requests`: requests that have no response yet;
- `reports`: the values, callbacks and errors that the worker gets.
"""
