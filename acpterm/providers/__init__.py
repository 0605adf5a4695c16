"""The providers: where a terminal's program runs.

A provider turns a command into what the keeper runs, and cleans up when the terminal has closed.

- `provider`: the interface; `registry`: creates a provider by its name;
- `local`, `landlock`, `bubblewrap`, `podman`: one provider each;
- `landlock_exec`: the script that restricts a process, and executes the program;
- `workspace`: the directory that a program may write to, and what is protected in it;
  `placeholders`: what stands there for protected names that do not exist;
- `off_loop`: calls in threads that access files; `tree_removal`: removes private directories;
- `secret_paths`, `environment`: the files and variables that a sandbox hides;
- x
"""
