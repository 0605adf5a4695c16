"""The VT emulator of a terminal (libghostty-vt), its screen, and its replies.

- `emulator`: the emulator of one terminal: bytes in, replies out, sizes;
- `native`, `library`: libghostty-vt, by cffi;
- `screen`: an immutable snapshot of the emulator's state, taken by `Emulator.screen`;
- `paint` and `frames`: escape sequences that show a screen in an attached window;
- `queries`: the filter for output that is passed through to an attached window;
- `replies`: the grammar of the replies that a program may get.
"""
