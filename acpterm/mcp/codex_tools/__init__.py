"""The tools of Codex: `exec_command` and `write_stdin`, with its schemas and defaults."""
