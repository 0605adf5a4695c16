"""`acpterm setup`: writes acpterm into the settings of agents, and removes it again.

A `plan` changes the file of one of the `targets` of one of the `agents`: it is shown first and
carried out later. All errors are `files.SetupError`.
"""
