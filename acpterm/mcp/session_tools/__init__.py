"""The tools of `--tools session`: terminals that an agent starts, continues, waits for and stops.

Each tool has a module. `replies` has what the results of the tools have in common.
"""
