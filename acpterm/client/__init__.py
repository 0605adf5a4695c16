"""Everything that connects to a daemon or starts an agent: clients of ACP, and user commands.

`acpterm.cli` parses the command lines and calls this package.

Subpackages:

- `proxy`: `acpterm proxy`, between an editor and its agent; gives the agent terminals.
- `prompt`: `acpterm prompt`, a headless ACP client that runs one turn of one agent.
- `user`: the commands of the user (`ls`, `attach`, `run`, …), over the user's socket.

Connecting to a daemon:

- `daemon`: connects to a daemon and starts it if necessary; blocking.
- `daemon_process`: starts a daemon as a separate process.
- `daemon_stream`: the same connections as trio streams; reconnects if one is lost.
- `handshake`: `initialize`, and when to stop trying to reconnect; no I/O.
- `host_connection`: the connection to the host that runs an agent's terminals.
- `unanswered`: the messages to send again after a lost connection; no I/O.

Exchanging messages:

- `endpoint`: one end of a JSON-RPC stream: sends requests, dispatches what is received.
- `envelope`: parses a message far enough to route it.
- `update`: parses and encodes `session/update` notifications.
- `terminals`: passes an agent's terminal requests on to the host.
- `output_poller`: polls the output of one terminal of the host.
- `questions`: the host's questions to the user, whether a command may run.
- `question_options`: the answers that the user can choose from.
- `wirelog`: writes all messages to a file (`--log`).

`acpterm stdio`:

- `stdio`: connects to the daemon and starts the relay.
- `stdio_relay`: passes bytes between the agent's stdin and stdout and the daemon.
- `request_log`: the relay's record of pending requests, to resume a lost connection.

Others:

- `agent_process`: runs an agent as a child process.
- `replay`: reads asciicasts. `playback`: plays one, controlled by keys.
- `sanitize`: makes untrusted text safe to print.
- `errors`: `LostError`, and the message of an exception group.
"""
