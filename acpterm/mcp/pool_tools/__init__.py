"""The tools of `--tools pool`: those of a PTY pool, another product's set of background terminals.

Agents create background terminals, and can read those of the user. One module for each tool;
`entries`: the parameters of several tools, and a terminal as they describe it.
"""
