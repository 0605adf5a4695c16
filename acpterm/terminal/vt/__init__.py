"""The VT emulator of a terminal (libghostty-vt), what it shows, and what it answers.

- `emulator`: the adapter around the native terminal: bytes in, replies out, sizes;
- `screen`: an immutable picture of all that the emulator knows, taken by `Emulator.screen`;
- `paint` and `frames`: escape sequences that show a picture in an attached window;
- `queries`: the filter for output that an attached window is sent directly;
- `replies`: the only answers that a program is sent.
"""
