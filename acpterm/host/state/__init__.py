"""State that survives a worker: records in the keeper's store, which the next worker restores."""
