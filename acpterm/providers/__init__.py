"""The providers: they run a terminal's program locally, in a sandbox or container, or elsewhere.

A provider turns a command into the argv that the keeper runs, and cleans up when the terminal has
closed.

- `provider`: the interface; `registry`: creates a provider by its name;
- `local`: no isolation; `landlock` and `bubblewrap`: sandboxes; `container`: podman and docker;
  `ssh`, `slurm`: places, which are other hosts and clusters.

Sandboxes and containers:

- `sandbox_trial`, `container_trial`: run a trial, to find out whether the isolation works here;
- `workspace`: the directory that a program may write to, and the protected names in it;
  `placeholders`: directories that are created at protected names that do not exist;
- `secret_paths`, `environment`: the files and the variables that a sandbox hides;
- `exec_script`: the shell text that executes the program inside;
- `landlock_exec`: the script that restricts its own process by Landlock, and executes the program;
- `bubblewrap_argv`, `container_argv`: the argv that runs a command in a sandbox or a container;
- `engine`: runs other commands of a container engine.

For several providers:

- `off_loop`: runs, in threads, functions that access files; `tree_removal`: removes private
  directories;
- `place_client`: private directories and the environment for a place's client, such as ssh;
- `guarded_tasks`: background tasks whose errors do not end the daemon.
"""
