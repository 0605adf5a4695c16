"""Recordings of terminals as asciicast files.

- `recorder`: records the output of terminals continuously, while the setting `record` is on.
- `cast_file`: the file of one recording: names, limits, and writing in threads.
- `walk`: converts a terminal's output to events, for recordings and exports.
- `library`: lists and reads the files of recordings, for the user's clients.
"""
