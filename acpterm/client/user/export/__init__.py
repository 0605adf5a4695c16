"""Exports a terminal as a recording or a picture, and plays recordings.

- `export`: writes an asciicast of a terminal's output.
- `files`: writes the exported file atomically.
- `picture`: renders a screen as SVG or HTML.
- `player`: plays a recording in this window. Keys control the playback (`client.playback`).
"""
