"""The policy: which commands agents may run, questions about them to the user, and the audit log.

`judge` is the entry point of a judgement, `approvals` that of the questions, `audit` the log. The
lists of safe programs and dangerous patterns are in `config.profiles`.
"""
