"""The wire types of ACP v1, and of acpterm's own ``_acpterm/…`` methods."""
