"""Process plumbing that the host and its clients share: stdio, send queues, logs, signals."""
