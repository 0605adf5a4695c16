"""Starting terminals: checked requests, commands, environments."""
