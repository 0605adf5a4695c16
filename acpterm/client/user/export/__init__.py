"""Export a terminal as a recording or a picture, and play recordings."""
