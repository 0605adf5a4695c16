"""Tracking of the processes that belong to a terminal, to kill all of them and no others.

A *tree* is all processes of one terminal. The *first child* is the terminal's program; an *orphan*
is a process whose parent has ended. `trees` is the entry point.
"""
