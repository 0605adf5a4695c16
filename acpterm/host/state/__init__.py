"""State that survives a worker: records, and the keeper's store that holds them."""
