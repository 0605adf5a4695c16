"""The audit log: commands of agents, decisions and exits, as JSON lines in files that are rotated.

Writing:

- `entry`: the members of an entry, and the names of the files;
- `log`: `AuditLog`, which queues entries, and the task that writes them;
- `input_counts`: the number of bytes typed into a terminal, which is recorded instead of the input;
- `texts`: redaction and maximum length of the texts of an entry;
- `writer`: `AuditWriter`, which appends lines to the current file, and rotates the files.

Reading:

- `log_files`: finds and opens the files;
- `reader`: reads the files from the oldest entry on, and follows them;
- `newest_first`: reads pages, from the newest entry back;
- `selection`: the filters of a reader.

Commands import `entry`, `reader` and `selection` only, which import neither trio nor structlog.
"""
