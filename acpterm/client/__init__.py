"""What the commands do: connect to the daemon, run agents, and add acpterm to their settings.

`acpterm.cli` parses the command lines and calls this package. The Python API (`acpterm.api`) and
the MCP server (`acpterm.mcp`) use some of its modules too.

Subpackages:

- `proxy`: `acpterm proxy`, between an editor and its agent; gives the agent terminals.
- `prompt`: `acpterm prompt`, a headless ACP client that runs one turn of one agent.
- `session_sockets`: sockets for `proxy --mcp` and `prompt --mcp`, one for each session of an agent.
- `user`: the commands of the user (`ls`, `attach`, `run`, …), over the user's socket.
- `chat`: the chat command `/terminal`, for `acpterm terminal` and `acpterm proxy`; no I/O.
- `setup`: `acpterm setup`, which adds acpterm to the settings of agents.

Connecting to a daemon:

- `daemon`: connects to a daemon and starts it if necessary; blocking.
- `daemon_process`: starts a daemon as a separate process.
- `daemon_stream`: connects as `daemon` does, but with trio streams; reconnects lost connections.
- `handshake`: `initialize`, and when to stop trying to reconnect; no network I/O.
- `host_connection`: the connection to the host that runs an agent's terminals.
- `unanswered`: the messages to send again after a lost connection; no I/O.

Exchanging messages:

- `endpoint`: one end of a JSON-RPC stream: sends requests, dispatches what is received.
- `envelope`: parses a message far enough to route it.
- `session_update`: parses and encodes `session/update` notifications.
- `terminals`: passes an agent's terminal requests on to the host.
- `output_poller`: polls the output of one terminal of the host.
- `questions`: receives the host's questions to the user, and sends the answers.
- `question_options`: the answers that the user can choose from.
- `wirelog`: writes all messages to a file (`--log`).

`acpterm stdio`:

- `stdio`: connects to the daemon and starts the relay.
- `stdio_relay`: passes bytes between the agent's stdin and stdout and the daemon.
- `request_log`: finds the pending requests in the relayed bytes, to resume a lost connection.

Others:

- `agent_process`: runs an agent as a child process.
- `asciicast`: reads asciicasts. `playback`: writes a cast's output at the right times.
- `provider_choice`: lists the providers, and writes the selected one into the settings.
- `sanitize`: makes untrusted text safe to print.
- `errors`: `LostError`, and the message of an exception group.
"""
