"""Arguments with which a safe program is not safe.

A program of the list of safe commands can still execute something, or write where the user did not
ask it to: `find -fprintf`, `sort -o`, `git -c core.pager=…`, `tee .git/hooks/x`. For programs with
many options (git, npm, node), it is known what is safe instead.

- `check`: the check of a program, by its name;
- `git`, `javascript`, `scripts` (awk and sed), `files` (find, sort, tee and others): the checks;
- `options`: what the checks share.
"""
