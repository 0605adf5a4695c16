"""The providers: where a terminal's program runs.

A provider turns a command into what the keeper runs, and cleans up when the terminal has closed.

- `provider`: the interface, and the providers by name;
- `local`, `landlock`, `bubblewrap`, `podman`: one provider each.
"""
