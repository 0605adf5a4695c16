"""The pool tools: background terminals of the agent, and read access to those of the user."""
