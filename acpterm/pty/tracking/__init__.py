"""Which processes belong to a terminal: by control group, and by descent."""
