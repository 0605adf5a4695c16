"""Tracking of the processes that belong to a terminal, to kill all of them and no others.

A *tree* is all processes of one terminal. The *first child* is the terminal's program; an *orphan*
is a process whose parent has ended.

- `trees`: creates and adopts the trees of all terminals; the entry point of this package;
- `tree`: the protocol `ProcessTree` of one tree, and `end`, which kills it;
- `cgroup`: the directory of control groups of a daemon; `cgroup_tree`: a tree by control group;
- `subreaper`: the process that adopts all orphans; `descendant_tree`: a tree by descent;
- `marks`: environment variables and a limit by which a terminal's processes are recognised;
- `origin`: which terminals a given process comes from;
- `leftovers`: kills the processes of daemons that were killed.
"""
