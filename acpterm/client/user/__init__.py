"""The person's side of the daemon: what the commands that show and move terminals are made of."""
