"""Checks of arguments: some arguments make a program of the list of safe commands unsafe.

With these arguments, the program executes something, or writes where the user did not ask it to:
`find -fprintf`, `sort -o`, `git -c core.pager=…`, `tee .git/hooks/x`. Most checks list the unsafe
options; those of programs with very many options or subcommands list what is safe instead.

- `check`: the entry point, which selects the check by the name of the program;
- `git`, `javascript` (node, npm and others), `scripts` (awk and sed), `files` (find, sort, tee and
  others): the checks;
- `options`: recognition of options and paths, for the checks;
- `own_settings`: commands that change the settings of acpterm or of agents, which are dangerous.
"""
