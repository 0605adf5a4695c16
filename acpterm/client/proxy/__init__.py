"""The proxy between an editor and its agent: what passes, what is answered, what is shown."""
