"""PTYs and processes, as the worker uses them; the keeper starts the programs."""
