"""What every process of acpterm needs, host or client: stdio, logs, signals, threads.

- `stdio`: stdin and stdout as a trio stream; `blocking_io`: the same descriptors without trio;
- `named_pipe`: a named pipe as a program's standard input;
- `send_queue`: lines to send to one peer, with backpressure;
- `unix_socket`: private directories for sockets, and the peer of a socket;
- `logs`: logging to stderr, or to a file that is rotated;
- `redaction`: replaces secrets in text, before it is logged or recorded;
- `shutdown_signals`: the signals that end a process;
- `threads`: blocking calls in a thread;
- `descriptors`: a reserve of file descriptors;
- `exec_context`: environment, directory, umask and limits that programs are started with;
- `command_line`: a command with its arguments as one text;
- `lines`: lines of text, which end at line feeds only;
- `bounded_dict`: a dict with a maximum size.
"""
