"""The user's words `/terminal list`, `start`, `send`, `output`, `stop` and `provider …`.

No I/O and no trio: `actions` parses a line, and `steps` turns an action into requests on the user's
socket, and their results into text (`texts`). The caller sends the requests: `acpterm terminal`
over a blocking connection, and `acpterm proxy` on trio, for prompts that begin with `/terminal`.
"""
