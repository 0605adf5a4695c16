"""Attaches to a terminal, from a window or from a script.

- `attach`: shows the terminal in this window, and sends typed keys to it by an `input_sender`.
- `tty`: this window: raw mode, size, input, and a queue of output.
- `detach_keys`: finds the detach keys in the input. `key_events`: parses reported key events.
- `pipe`: prints output and forwards stdin, without a window, as in a pipeline.
"""
