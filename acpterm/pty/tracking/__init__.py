"""Tracking of the processes that belong to a terminal: by control group, and by descent."""
