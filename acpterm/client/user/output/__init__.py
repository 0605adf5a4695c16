"""Reads, follows and prints the output of a terminal.

- `read`: reads output as bytes, over the blocking connection. The program does not wait for the
  reader, so a slow reader loses output.
- `follow`: reads output as bytes, in trio. The program waits for the reader, so nothing is lost.
- `text_follow`: reads output as text: first the retained text, then live text.
- `show`: prints output: as text, as text with times, or as raw bytes (`acpterm logs`).
- `lines`: decides which characters to print when the last line changes.
- `blocking_stdout`: writes to stdout and stderr, blocking. `trio_stdout`: the same in trio.
"""
