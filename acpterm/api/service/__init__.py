"""The terminal service: commands, scripts and sessions in exchangeable providers.

A session is an interactive program in a terminal of its own, not an ACP session.

- `service`: `TerminalService`. `state`: the state of the service.
- `types`: options, results, and `TerminalProvider`, the interface of providers.
- `provider`: the built-in providers. `command_words`: words of a compound command.
"""
