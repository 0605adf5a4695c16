"""Process plumbing that the host and its clients share."""
