"""The tools of Claude Code: `Bash`, `BashOutput`, `KillShell` and `Monitor`, with its schemas."""
