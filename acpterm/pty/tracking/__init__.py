"""Tracking of the processes that belong to a terminal, to kill all of them and no others.

A *tree* is all processes of one terminal. The *first child* is the terminal's program; an *orphan*
is a process whose parent has ended.

- `trees`: creates and adopts the trees of all terminals; the entry point of this package;
- `tree`: one tree, and `end`, which ends all its processes;
- `subreaper`: finds the tree to which an orphan belongs;
- `cgroup`: the directory of control groups of a daemon; `cgroup_tree`: one group;
- `controllers`: enables controllers for these groups; `cgroup_limits`: sets the groups' limits;
- `marks`: environment variables and a limit by which a terminal's processes are recognised;
- `origin`: the terminals from which a given process may come;
- `leftovers`: kills processes that a daemon left behind when it was killed.
"""
