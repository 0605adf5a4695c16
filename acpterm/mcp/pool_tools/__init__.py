"""The tools of `--tools pool`: those of a PTY pool, another product's set of background terminals.

Agents create background terminals, and can read those of the user. Each tool has a module of its
own. The module `entries` has what several of these tools share.
"""
