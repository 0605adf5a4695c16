"""The user's side of the host: the methods that the user's commands call on the user's socket."""
