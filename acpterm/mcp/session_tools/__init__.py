"""The tools of `--tools session`: terminals that an agent starts, continues, waits for and stops.

One module for each tool; `replies`: what their results have in common.
"""
