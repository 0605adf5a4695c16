"""The session tools: terminals that an agent starts, continues, watches and stops."""
