"""The tools of `--tools codex`: those of Codex, with its names, schemas and defaults.

`exec_command` and `write_stdin`: one module each; `chunks`: their result.
"""
