"""Reads, follows and prints the output of a terminal.

- `read`: output as bytes, over the blocking connection; the program does not wait for the reader.
- `follow`: output as bytes, in trio; the program waits for the reader, so nothing is lost.
- `text_follow`: output as text: what is retained, then live.
- `show`: prints output: as text, as text with times, or as raw bytes (`acpterm logs`).
- `lines`: which characters to print so that a changing last line looks right.
- `print`: writes to stdout and stderr, blocking. `stdout`: the same in trio.
"""
