"""State that survives a worker: records in the keeper's store, which the next worker restores.

- `records`: the types of the records, and their encoding.
- `store`: the interface and the keys of the keeper's store.
- `writer`: stores changed records, before each response that may depend on them.
- `snapshot`: reads all records of the previous worker, and checks them.
"""
