"""The chat command `/terminal`: its actions `list`, `start`, `send`, `output`, `stop`, `provider`.

No I/O and no trio: `actions` parses a line into an action; `steps` turns an action on terminals
into requests on the user's socket, and their results into text (`texts`). The caller sends the
requests: `acpterm terminal` over a blocking connection, and `acpterm proxy` on trio, for prompts
that begin with `/terminal`.
"""
