"""The emulator of a terminal (libghostty-vt), its screen, and its replies.

- `emulator`: the emulator of one terminal: takes output, produces screens and replies;
- `broken`: replaces the emulator of a terminal whose output has crashed the library;
- `library`: loads libghostty-vt by cffi; `native`: the calls of the library that are used;
- `dump`: parses the library's binary snapshot of a terminal; `page`: decodes the rows in it;
- `repair`: fixes a screen that the library cannot encode in a snapshot;
- `screen`: an immutable snapshot of the emulator's state, taken by `Emulator.screen`;
- `style`: colours and attributes of cells; `rows`: rows of cells as text with SGR sequences;
- `paint`: puts a passthrough window into the state of a screen;
- `frames`: paints a screen in a window of another size;
- `queries`: removes queries from output that is passed through to a window;
- `replies`: the grammar of the replies that a program may get;
- `scrolled_off`: finds output that need not be emulated, since it scrolls off the screen.
"""
