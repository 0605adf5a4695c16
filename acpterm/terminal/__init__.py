"""The worker's terminals: their output, input, exit status and screen.

`pool` has all of them, and `terminal` is one. `consumer` feeds its output, from the ring that the
keeper fills (`shared_ring`), to the text (`text/`), the emulator (`vt/`) and the `timeline`.
"""
