"""The terminal service: commands, scripts and sessions in exchangeable providers.

- `service`: `TerminalService`; `state`: its state; `types`: options, results, `TerminalProvider`;
- `provider`: the built-in providers; `command_words`: words of a compound command.
"""
