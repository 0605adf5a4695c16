"""The emulator of a terminal (libghostty-vt), its screen, and its replies.

`emulator` takes output and produces a `screen` and `replies`; it calls the library by `native` and
parses its snapshots by `dump` and `page`. `paint` and `frames` paint a screen in a window, whose
further output `queries` filters.
"""
