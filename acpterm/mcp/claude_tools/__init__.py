"""The tools of `--tools claude`: those of Claude Code, with its names and schemas.

`bash`: `Bash`; `bash_output`: `BashOutput`; `kill_shell`: `KillShell`; `monitor`: `Monitor`;
`replies`: what the results of these tools have in common.
"""
