"""The audit log: what agents ran, who decided, and what became of it, as lines of JSON in a file.

- `entry`: the members of an entry, and the names of the files;
- `log`: `AuditLog`, which queues entries, and the task that writes them;
- `input_counts`: input to terminals, counted instead of recorded;
- `file`: appends to the file, and rotates it;
- `reader`: reads the files in order, and follows them.

Commands import `entry` and `reader` only, without trio and structlog.
"""
