"""acpterm: real terminals for agents that speak the Agent Client Protocol (ACP).

- `keeper`: a small process that starts programs, and owns their PTYs and output;
- worker: `host` serves the agents and the user, with terminals from `terminal`;
- `client`: connects to the daemon (keeper and worker) for commands and editors;
- `cli`: the commands, a thin layer on `client`;
- the glossary of all terms is in `docs/HACKING.md`.
"""

__version__ = "0.1.0"
