"""The audit log: what agents ran, who decided, and what became of it, as lines of JSON in a file.

- `entry`: the members of an entry, and the names of the files;
- `log`: `AuditLog`, which queues entries, and the task that writes them;
- `input_counts`: input to terminals, counted instead of recorded;
- `file`: appends to the file, and rotates it;
- `files`: finds and opens the files to read them;
- `reader`: reads the files in order, and follows them;
- `newest_first`: reads pages, from the newest entry back;
- `selection`: what a reader asks for.

Commands import `entry`, `reader` and `selection` only, without trio and structlog.
"""
